"""OAuth: tokens that callers bring are verified, and tokens for upstreams are obtained."""
