"""The parts of access, wired: credentials for upstreams, and what people have authorized there."""
