"""A small MCP server to try the adapter with: ``python -m adapter.upstream.demo --port 0 --folder DIR``.

server.py offers files of a folder, and orders, as tools, resources and a prompt; shop.py generates the database of
orders, which the adapter's own demo tools ask too; and __main__.py serves the server on loopback.
"""
