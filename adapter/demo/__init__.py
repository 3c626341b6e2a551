"""``mcp-adapter demo``: the adapter in front of a small MCP server, and of a shop that it hosts itself.

running.py starts and stops it all, config.yaml is its configuration, welcome.txt is what a person reads, and the
files in tools are the shop's tools.
"""
