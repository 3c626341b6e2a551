"""Metrics: the catalogue of all, the port that counts them, the labels of calls, and the outcome of an answer.

Pure. ``telemetry/metric_registry.py`` keeps the numbers; each room that counts knows the port alone.
"""
