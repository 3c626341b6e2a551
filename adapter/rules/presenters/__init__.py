"""The part of a tool's data that a model reads, and what is said beside it. Pure."""
