"""The meaning of bytes: JSON-RPC, server-sent events, ranges, links. Pure."""
