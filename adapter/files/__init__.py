"""Files on the disk: staged, placed, opened, measured and removed."""
