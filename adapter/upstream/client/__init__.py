"""A client for commands: MCP by the official SDK, uploads and downloads over HTTP.

server.py opens a connection to an MCP server, uploads.py and downloads.py move files.
"""
