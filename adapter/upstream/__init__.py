"""Upstreams over HTTP: a pool of connections, requests written once, answers read piece by piece."""
