"""Merged mounts: several servers at one address. ``names`` and ``uris`` say who owns a name or a URI there, ``lists``
joins what the servers list, ``own_answers`` is what a mount says itself.
"""
