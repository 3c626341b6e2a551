"""The commands beside serving: plans, pins, lock files, checks of databases, and the watch for changed files."""
