"""``mcp-adapter doctor``: the adapter, its machine and its servers looked at as a client would meet them.

findings.py says what a check found, machine.py looks at storage, port and clock, servers.py at each server,
round_trip.py moves a file through a tool, and examination.py runs all of them.
"""
