"""Merged mounts: several servers at one address. ``names`` says who owns a name there."""
