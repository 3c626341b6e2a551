"""Requests to call a tool: arguments, inputs, conditions, rounds, and when a call may be repeated. Pure."""
