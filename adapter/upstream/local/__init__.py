"""Upstreams without a network: MCP over HTTP as the relay speaks it, in front of a server that knows messages only.

upstream.py reads requests of both eras, sessions.py keeps sessions, also those that any replica serves,
replies.py waits for answers, events.py streams them, messages.py spells them, and port.py says what a server fulfils.
For servers elsewhere that write all messages to one line, correlation.py brings each to its request (under_way.py).
"""
