"""One MCP endpoint in front of many upstream servers, which also moves files.

A call flows from ``edge`` through ``relay`` to ``upstream``, and its answer flows back. From the bottom up:

* ``errors``: every way in which a request can fail. ``wire``: what bytes mean. ``rules``: what may happen. All pure.
* ``upstream``, ``files``, ``state``, ``hosted``: servers, disk, store, and tools that live here.
* ``pipeline``: the stages of a planned tool call. ``relay``: what becomes of each request; one wing for calls,
  sessions, tools, files, and callers over HTTP.
* ``edge``: HTTP, MCP endpoints, uploads and downloads, the HTTP API of tools, the console, health.
* ``settings``, ``log``, ``telemetry``: what operators say, and what they are told.
* ``app``: builds every object once and runs it. ``commands``, ``cli``, ``demo``: the command line. ``api``: for
  programs that embed the adapter, and for authors of scripts.

Imports point downwards only; ``tests/test_layers.py`` has the table.
"""
