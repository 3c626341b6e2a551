"""Merged mounts: what clients ask at one address is routed to the relay of the server that it is about."""
