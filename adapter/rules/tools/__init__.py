"""Definitions of tools: catalogues, visibility, drift, lock files, search and code mode. Pure."""
