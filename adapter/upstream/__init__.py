"""Upstreams: over HTTP on a pool of connections, in this process (local), as processes (stdio), scripted for tests.

The server of the demo is here too.
"""
