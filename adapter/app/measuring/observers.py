"""The places in the adapter where something is counted, each told where to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from adapter.app.files import FileParts
from adapter.app.replicas import ReplicaParts
from adapter.relay.cleanup import Cleanup
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.tools.tool_guard import ToolGuard
from adapter.rules.files.file_records import FileRecord
from adapter.rules.metrics.catalogue import (
    CLEANUP_CYCLES,
    DRIFT,
    EVICTIONS,
    FORWARDED,
    NONCES,
    PERSISTENCE,
    PING_LATENCY,
    PINGS,
    QUEUE_WAITS,
    SESSION_EVENTS,
    UPLOAD_BYTES,
    UPLOAD_CREDENTIALS,
    UPLOAD_FILES,
    WIRING_RUNS,
)
from adapter.rules.metrics.port import MetricSink
from adapter.state.fallback import FallbackStore


def observe_servers(
    sink: MetricSink, servers: Iterable[Server], monitors: Mapping[str, HealthMonitor]
) -> None:
    """Count pings, looks at configured tools, drift, and waits for connections."""
    for server in servers:
        server.wiring.on_look = partial(sink.count, WIRING_RUNS, server.id)
        if isinstance(server.stages.guard, ToolGuard):
            server.stages.guard.on_drift = partial(sink.count, DRIFT, server.id)
        if server.connections is not None:
            server.connections.watch(partial(_waited, sink, "upstream"))
    for server_id, monitor in monitors.items():
        monitor.on_ping = partial(_pinged, sink, server_id)


def observe_sessions(sink: MetricSink, sessions: Sessions) -> None:
    """Count what becomes of sessions."""
    sessions.on_event = partial(sink.count, SESSION_EVENTS)


def observe_files(sink: MetricSink, files: FileParts, backend: str) -> None:
    """Count uploads, upload URLs, evictions, and waits of uploads. ``backend`` is the kind of the state store."""
    files.credentials.on_use = partial(_used, sink, backend)
    if not files.active:
        return

    async def uploaded(record: FileRecord) -> None:
        sink.count(UPLOAD_FILES, record.server)
        sink.count(UPLOAD_BYTES, record.server, by=record.content.size)

    files.on_upload = uploaded
    files.registry.watch(
        lambda record: sink.count(EVICTIONS, record.kind.value), partial(_waited, sink, "upload")
    )


def observe_state(sink: MetricSink, fallback: FallbackStore | None, cleanup: Cleanup) -> None:
    """Count outages of the state store, and the rounds of the cleanup."""
    if fallback is not None:
        fallback.on_step = partial(sink.count, PERSISTENCE)
    cleanup.on_end = partial(_cleaned, sink)


def observe_replicas(sink: MetricSink, replicas: ReplicaParts) -> None:
    """Count what is forwarded to other replicas."""
    replicas.watch(partial(sink.count, FORWARDED))


def _pinged(sink: MetricSink, server: str, result: str, seconds: float) -> None:
    sink.count(PINGS, server, result)
    sink.observe(PING_LATENCY, seconds, server, result)


def _used(sink: MetricSink, backend: str, counted: str, server: str, operation: str, result: str) -> None:
    if counted == "nonce":
        sink.count(NONCES, server, operation, result, backend)
    else:
        sink.count(UPLOAD_CREDENTIALS, server, operation, result)


def _cleaned(sink: MetricSink, task: str, succeeded: bool) -> None:
    sink.count(CLEANUP_CYCLES, task, "success" if succeeded else "failure")


def _waited(sink: MetricSink, queue: str, seconds: float, succeeded: bool) -> None:
    sink.observe(QUEUE_WAITS, seconds, queue, "ok" if succeeded else "refused")
