"""Statements for SQL, MongoDB and Redis with placeholders for values. Pure."""
