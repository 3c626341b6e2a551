"""Replicas that share a store: the row of each, and requests for sessions that live in another one."""
