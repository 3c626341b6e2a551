"""The state store: its port, with memory and SQLite behind it, and a store that notes whether it can be written."""
