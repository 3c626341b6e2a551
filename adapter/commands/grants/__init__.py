"""``mcp-adapter grants``: what people have authorized at upstreams, listed and revoked."""
