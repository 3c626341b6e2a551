"""The console: the files of its page, the data that it shows to whom, and the description of these routes."""
