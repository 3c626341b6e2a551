"""Metrics: the registry, what is counted where, the gauges that are read for a scrape, and the routes.

Imported only where the settings ask for metrics.
"""
