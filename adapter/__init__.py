"""adapter: one MCP endpoint in front of many upstream servers, that also moves files.

A call flows edge -> relay -> upstream and its answer flows back. rules/ decides what may happen, wire/ knows
what bytes mean; neither awaits anything, so start reading there. state/ keeps what must survive a restart,
files/ what is staged on disk, hosted/ the tools that live here,
pipeline/ the stages that a planned tool call walks. app.py builds every object once, bottom up,
from settings/; errors.py lists every way a request can fail. Imports point downwards only.
"""
