"""Checks of what has to fit together across sections, and warnings about what is legal but dangerous."""
