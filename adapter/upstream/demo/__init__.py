"""A small MCP server to try the adapter with: ``python -m adapter.upstream.demo --port 0 --folder DIR``.

folder.py reads and writes files without ever leaving the directories it was given, orders.py is a generated
SQLite database, chart.py draws a PNG, server.py offers all that as tools, resources and a prompt, and
__main__.py serves it on loopback.
"""
