"""Keys of earlier files that set nothing any more: such a file loads, and its user is told what holds instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from adapter.settings.section import Problem, spelled

RETIRED: Mapping[str, str] = {
    "state_persistence.reconciliation.legacy_server_id": "files without a record are given to nobody",
    "telemetry.drop_on_queue_full": "spans above max_queue_size are dropped, and no call waits for a collector",
    "telemetry.flush_on_shutdown": "spans that wait are exported when the adapter stops",
    "telemetry.flush_on_terminate": "spans that wait are exported when the interpreter exits",
    "telemetry.log_batch_export_timeout_millis": "export_timeout_seconds counts for logs too",
    "telemetry.log_batch_max_export_batch_size": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.log_batch_max_queue_size": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.log_batch_schedule_delay_millis": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.queue_batch_size": "one export has at most 256 spans",
    "servers.[].upstream.restart": "the pause between failed starts doubles from 1 s to 60 s",
}
"""The path of each, where ``[]`` stands for every entry of a list, and what holds whatever it says."""


def take_retired(tree: dict[str, Any]) -> list[Problem]:
    """Remove the retired keys from a file's values; return a caution for each that had a value."""
    return [
        Problem(spelled(location), f"has no effect: {holds}; remove it")
        for path, holds in RETIRED.items()
        for location, value in _taken(tree, path.split("."))
        if value is not None
    ]


def _taken(value: Any, steps: list[str]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    first, *rest = steps
    if first == "[]":
        inner: list[tuple[str | int, Any]] = [*enumerate(value)] if isinstance(value, list) else []
    elif not isinstance(value, dict) or first not in value:
        return
    elif not rest:
        yield (first,), value.pop(first)
        return
    else:
        inner = [(first, value[first])]
    for step, each in inner:
        for location, found in _taken(each, rest):
            yield (step, *location), found
