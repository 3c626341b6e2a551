"""The parts of access, wired: what people have authorized at upstreams."""
