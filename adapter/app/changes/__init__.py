"""Changes of what the adapter was built from, while it serves."""
