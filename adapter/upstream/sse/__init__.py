"""Upstreams over HTTP+SSE, the transport of MCP 2024-11-05: one event stream for each session, messages by POST.

stream.py opens a stream, finds the endpoint that its server names and posts messages there, line.py reads the stream
and opens it again, session.py joins both to the requests of one client, and server.py stands behind a LocalUpstream.
"""
