"""What bytes mean: JSON-RPC, server-sent events, ranges, links. Pure."""
