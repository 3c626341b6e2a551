"""Clients' sessions, the sessions of upstreams behind them, and the adapter's own."""
