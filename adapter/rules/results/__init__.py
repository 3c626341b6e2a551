"""Results of calls: what is added to them, what is refused, and how failures are told. Pure."""
