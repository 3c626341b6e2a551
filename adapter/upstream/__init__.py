"""Upstreams: over HTTP on a pool of connections, in this process (local), and scripted for tests; the demo's server."""
