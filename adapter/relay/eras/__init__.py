"""Bridges between the eras of MCP: clients of one era reach a server that speaks only the other.

bridge.py stands before the upstream while it speaks one era, legacy_clients.py translates for clients with sessions,
modern_clients.py for those without: their calls (bridged_call.py) wait in parked_calls.py while the server asks.
The messages themselves are translated in rules/eras/.
"""
