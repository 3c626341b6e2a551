"""Checks of large values against schemas in worker processes."""
