"""``mcp-adapter connect``: a server over stdio for a host that speaks nothing else, which is a remote one in truth."""
