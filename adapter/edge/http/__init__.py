"""HTTP/1.1: the listener, its connections with their limits and parser, requests with their bodies, responses, access
by Host, Origin and token, and a bridge for requests of a host's aiohttp application.
"""
