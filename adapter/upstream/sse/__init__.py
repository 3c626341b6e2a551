"""Upstreams over HTTP+SSE, the transport of MCP 2024-11-05: one event stream for each session, messages by POST.

stream.py opens a stream and finds the endpoint that its server names, line.py reads it and opens it again, posts.py
sends messages, session.py joins both to the requests of one client, and server.py stands behind a LocalUpstream.
"""
