"""Lists of tools and their guards: catalogues, pins, drift, visibility and code mode."""
