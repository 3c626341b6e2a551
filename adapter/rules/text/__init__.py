"""Text that strangers wrote: expressions for it, what of it is secret, and as much of it as a line of the log holds."""
