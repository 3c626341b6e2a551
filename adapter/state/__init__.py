"""The state store: what must survive a restart, in memory or in SQLite."""
