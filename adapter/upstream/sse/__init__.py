"""Upstreams over HTTP+SSE, the transport of MCP 2024-11-05: one event stream for each session, messages by POST.

stream.py opens the stream and finds the endpoint that its server names, posts.py sends messages there, session.py joins
both to the requests of one client, and server.py stands behind a LocalUpstream.
"""
