"""Tools that live here: servers in process, their connectors to databases, and scripts."""
