"""MCP clients and their own files of settings: where a server stands there, and its entry as text. Pure."""
