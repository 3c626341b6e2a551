"""Replicas that share a store: the row of each, requests for sessions that live in another one, and words about those
that all of them serve.
"""
