"""The plans of an adapter under test."""

from __future__ import annotations

from adapter.app import App
from adapter.app.tool_plans import Compiled


def plans_of(app: App) -> Compiled:
    """The plans of an adapter whose settings ask for some."""
    assert app.plans is not None
    return app.plans
