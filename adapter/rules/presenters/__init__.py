"""What of a tool's data a model reads, and what is said beside it. Pure."""
