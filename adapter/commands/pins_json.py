"""``mcp-adapter pins … --json``: the pin status of servers as data, for scripts and CI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapter.commands.pin_status import Baseline, ServerPinStatus, Unreadable
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.drift import drift
from adapter.rules.tools.drift_report import as_data


def pins_report(servers: Sequence[ServerPinStatus]) -> list[dict[str, Any]]:
    """One object for each server, in the order of the settings.

    ``now`` is null where the tools cannot be read, and ``error`` says why. ``baselines`` are what sessions start from;
    each has its ``drift`` from the tools of now, null if there is none or it is unknown. ``remembered`` is the drift
    that nobody has accepted yet, null if there is none.
    """
    return [_server(status) for status in servers]


def _server(status: ServerPinStatus) -> dict[str, Any]:
    now = None if isinstance(status.now, Unreadable) else status.now
    troubles = (status.baseline_trouble, status.now if isinstance(status.now, Unreadable) else None)
    errors = [str(trouble) for trouble in troubles if trouble is not None]
    return {
        "id": status.entry.id,
        "now": None if now is None else _catalogue(now),
        "error": " ".join(errors) or None,
        "baselines": [_baseline(baseline, now) for baseline in status.baselines],
        "first_seen": dict(status.first_seen),
        "remembered": None if status.remembered is None else status.remembered.as_data(),
    }


def _baseline(baseline: Baseline, now: Catalogue | None) -> dict[str, Any]:
    differs = now is not None and now.digest != baseline.catalogue.digest
    found = drift(baseline.catalogue.tools, now.tools) if now is not None and differs else None
    return {
        "origin": baseline.origin,
        "binding": baseline.binding,
        **_catalogue(baseline.catalogue),
        "drift": None if found is None else as_data(found),
    }


def _catalogue(catalogue: Catalogue) -> dict[str, Any]:
    return {"digest": catalogue.digest, "tools": len(catalogue.tools)}
