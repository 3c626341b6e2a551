"""Decide who may come in, and what may pass of a request and an answer. Pure.

This is about hosts, principals, headers, rates and sessions.
"""
