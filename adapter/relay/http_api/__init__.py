"""Callers over HTTP as clients of the relay, and the exchanges that operators watch."""
