"""One MCP endpoint in front of many upstream servers, which also moves files.

A call flows from ``edge`` through ``relay`` to ``upstream``, and its answer flows back. From the bottom up:

* ``errors``: every way in which a request can fail. ``wire``: the meaning of bytes (JSON-RPC, spans of JSON, events,
  links). ``rules``: decisions about access, calls, files, tools, results, presenters, statements, schemas and
  the files of clients; ``rules.text`` is used everywhere. All of these are pure.
* ``upstream``: the client for HTTP servers, the streams of servers over SSE, and the processes of servers over stdio.
  ``files``: the store of files on disk. ``state``: the store of records, in memory or in SQLite. ``hosted``: tools that
  run here, as scripts or as statements for databases.
* ``pipeline``: the stages of a planned tool call. ``relay``: the treatment of each request; its wings are ``call``,
  ``sessions``, ``tools``, ``files``, ``replicas``, and ``http_api`` for callers without MCP.
* ``edge``: the side of clients; its wings are ``http`` (the server), ``mcp`` (the endpoints), ``files`` (uploads and
  downloads), ``api`` (tools over HTTP) and ``console``, beside the router, health and OpenAPI.
* ``settings``: the file and its checks. ``log``, ``telemetry``: reports to operators.
* ``startup``: the reasons why a start failed, and those who are told.
* ``app``: builds every object once and runs it. ``workers``: several processes on one port. ``commands``, ``cli``,
  ``demo``: the command line. ``api``: names for programs that embed the adapter, and for authors of scripts.
  ``version``: that of the installed package. ``extras``: the libraries that it may lack.

Imports point downwards only; ``tests/test_layers.py`` has the table.
"""
