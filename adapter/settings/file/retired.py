"""Keys of earlier files that set nothing any more: such a file loads, and its user is told what holds instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from adapter.settings.section import Problem, spelled

RETIRED: Mapping[str, str] = {
    "core.client_timeouts.answer_stall_seconds": "a client may read nothing of its answer for 60 s",
    "core.client_timeouts.body_silence_seconds": "a body may be silent for 30 s",
    "core.client_timeouts.head_seconds": "a request head may take 15 s",
    "core.client_timeouts.min_body_grace_seconds": "the first 10 s of a body do not count",
    "core.client_timeouts.min_body_window_seconds": "the speed of a body is measured over 10 s",
    "core.cors.allowed_methods": "a preflight answer allows GET, POST, DELETE and OPTIONS",
    "core.cors.max_age_seconds": "a browser may keep a preflight answer for 600 s",
    "core.max_batch_members": "a JSON-RPC batch has at most 100 messages",
    "core.max_request_values": "a JSON-RPC body has at most 200,000 values",
    "core.max_tool_definition_bytes": "a tool with a definition above 1 MiB is hidden",
    "core.max_tool_list_bytes": "a page of a tool list has at most 32 MiB",
    "core.max_tools": "a server has at most 20,000 tools",
    "core.upstream.connect_timeout_seconds": "a connection is opened within 5 s",
    "state_persistence.reconciliation.legacy_server_id": "files without a record are given to nobody",
    "state_persistence.redis.cluster": "a url with redis+cluster:// names a cluster",
    "state_persistence.redis.connect_timeout_seconds": "timeout_seconds counts for connections too",
    "state_persistence.redis.partitions": "rows are divided into 64 parts",
    "telemetry.drop_on_queue_full": "spans are dropped while 5000 wait, and no call waits for a collector",
    "telemetry.export_timeout_seconds": "one export takes at most 10 s",
    "telemetry.flush_on_shutdown": "spans that wait are exported when the adapter stops",
    "telemetry.flush_on_terminate": "spans that wait are exported when the interpreter exits",
    "telemetry.log_batch_export_timeout_millis": "one export takes at most 10 s",
    "telemetry.log_batch_max_export_batch_size": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.log_batch_max_queue_size": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.log_batch_schedule_delay_millis": "log lines are exported as OpenTelemetry's OTEL_BLRP_* variables say",
    "telemetry.max_queue_size": "at most 5000 spans wait for export",
    "telemetry.periodic_flush_seconds": "spans are exported every 5 s, and as soon as there are 256",
    "telemetry.queue_batch_size": "one export has at most 256 spans",
    "validation": "a check takes at most 2 s, 512 MiB and 2,000,000 steps, and 8 may wait for one of 2 processes",
    "servers.[].upstream.auth.requested_token_type": "the authorization server chooses the type",
    "servers.[].upstream.auth.subject_token_type": "the caller's token is an access token",
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
