"""Merged mounts: several servers at one address. ``names`` and ``uris`` say who owns a name or a URI there, ``lists``
joins what the servers list, ``member_ids`` tells the ids that they choose apart.
"""
