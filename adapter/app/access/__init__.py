"""The parts of access, wired: rules for callers, credentials for upstreams, and what people have authorized there."""
