"""Decisions without effects: nothing here awaits, reads a clock, settings or the log."""
