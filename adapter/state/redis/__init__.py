"""The state store in Redis or Valkey, which many replicas share.

``store.py`` is the store, ``layout.py`` names the keys and writes rows as bytes, ``scripts.py`` holds what changes
rows in one step. ``nodes.py`` knows the servers and which of them has a partition, ``link.py`` is the connection to
one of them, ``subscription.py`` hears what others change.
"""
