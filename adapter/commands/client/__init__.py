"""``mcp-adapter tools`` and ``call``: any MCP server from a shell, with files, questions and a sign-in."""
