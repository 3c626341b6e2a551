"""The MCP endpoint of each mount, and the reader of what clients send there."""
