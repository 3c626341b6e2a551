"""``servers[]``: upstreams, their tools, stages, policies and pings."""
