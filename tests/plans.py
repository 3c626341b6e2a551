"""The plans of an adapter under test."""

from __future__ import annotations

from adapter.app import App
from adapter.app.hosted import HostedTools


def plans_of(app: App) -> HostedTools:
    """The plans of an adapter whose settings ask for some."""
    assert app.plans is not None
    return app.plans
