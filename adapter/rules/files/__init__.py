"""Files: their names, types, records, quota, and the paths that no text may show. Pure."""
