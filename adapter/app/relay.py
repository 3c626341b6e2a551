"""The relay: sessions of clients, and what passes between them and the servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.app.servers import Servers
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.dispatch import Relay
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.cleanup import CleanupTask
from adapter.relay.exchange import Exchanges
from adapter.relay.files.scopes import Scopes
from adapter.relay.lease import Lease
from adapter.relay.lease import tidy as tidy_leases
from adapter.relay.notifications import Notifications
from adapter.relay.sessions.idle_sessions import IdleSessions
from adapter.relay.sessions.last_seen import LastSeen
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.renewal import LateSessions
from adapter.relay.sessions.session_expiry import SessionExpiry
from adapter.relay.sessions.session_map import SessionLimits, Sessions
from adapter.relay.sessions.upstream_sessions import SessionOpener, UpstreamSessions
from adapter.settings.root import Settings
from adapter.state.port import Store

if TYPE_CHECKING:
    from adapter.app.measuring.parts import Metering
    from adapter.files.audit_log import AuditLog
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.relay.shared_notifications import SharedNotifications

PARKED_TTL = 3600.0
"""Seconds for which an answer may still come on another stream."""


class Runtime(NamedTuple):
    """The clock (Unix seconds), the log and the background tasks that all parts of the adapter share.

    ``metering`` counts; None where nothing is counted.
    """

    clock: Callable[[], float]
    log: FilteringBoundLogger
    background: BackgroundTasks
    metering: Metering | None = None


# --- sessions ---------------------------------------------------------------------------------------------------


class SessionParts(NamedTuple):
    """The sessions of clients, the scopes that own files and pins, and the sessions with upstreams.

    ``shared_notifications`` is None where no other process uses the store.
    """

    sessions: Sessions
    scopes: Scopes
    notifications: Notifications
    upstream: UpstreamSessions
    last_seen: LastSeen
    shared_notifications: SharedNotifications | None


def build_sessions(settings: Settings, store: Store, runtime: Runtime) -> SessionParts:
    """Build the parts that know about sessions."""
    limits = settings.sessions
    sessions = Sessions(
        store,
        SessionLimits(
            max_active=limits.max_active,
            max_in_flight=limits.max_in_flight_per_session,
            idle_ttl=limits.idle_ttl_seconds,
            allow_revival=limits.allow_revival,
            tombstone_ttl=limits.tombstone_ttl_seconds,
        ),
        runtime.clock,
    )
    notifications = Notifications()
    shared = None
    if store.shared:
        # Late: most stores are one process's own.
        from adapter.relay.shared_notifications import SharedNotifications

        shared = SharedNotifications(store, notifications, runtime.background, runtime.clock)
    return SessionParts(
        sessions,
        Scopes(store, per_principal=limits.scope == "principal"),
        notifications,
        UpstreamSessions(
            sessions,
            LateSessions(runtime.background, runtime.log),
            renewals=limits.upstream_session_termination_retries,
            clock=runtime.clock,
            log=runtime.log,
        ),
        LastSeen(sessions.cache, store, limits.idle_ttl_seconds, runtime.clock),
        shared,
    )


# --- requests ---------------------------------------------------------------------------------------------------


class RelayParts(NamedTuple):
    """The relay with the parts that it stands on; ``audit`` and ``trail`` are None where no record is kept."""

    relay: Exchanges
    sessions: SessionParts
    servers: Servers
    deferred: DeferredAnswers
    audit: AuditLog | None = None
    trail: AuditTrail | None = None


def build_relay(
    settings: Settings,
    store: Store,
    runtime: Runtime,
    parts: SessionParts,
    servers: Servers,
) -> RelayParts:
    """Build the relay over these sessions and servers."""
    sessions, upstream_sessions = parts.sessions, parts.upstream
    tables = {name: server.stages for name, server in servers.by_id.items()}
    deferred = DeferredAnswers(store, tables, runtime.background, ttl=PARKED_TTL, clock=runtime.clock)
    serves = settings.sessions.missing_id == "principal"
    kept = PrincipalSessions(sessions, store, runtime.clock, serves=serves)
    by_id = servers.by_id
    sessions.cache.on_renewed = lambda server: by_id[server].began_anew() if server in by_id else None
    call_gate = CallGate(upstream_sessions, parts.scopes.of)
    relay = Relay(
        sessions,
        upstream_sessions,
        SessionOpener(sessions, upstream_sessions, kept, runtime.clock),
        call_gate,
        PassThrough(upstream_sessions, deferred, runtime.background),
        StagedExchange(call_gate, upstream_sessions, deferred, runtime.background),
        GetStreams(call_gate, upstream_sessions, deferred, parts.notifications),
    )
    lines, trail = None, None
    if settings.core.audit.enabled:
        # Late: most adapters keep no record.
        from adapter.app.policies.audit import build_trail

        lines, trail = build_trail(settings, runtime.background, runtime.log)
    counts = None if runtime.metering is None else runtime.metering.operations
    if counts is not None or trail is not None:
        # Late: many adapters neither count nor keep a record.
        from adapter.relay.call.observed import ObservedRelay

        return RelayParts(ObservedRelay(relay, counts, trail), parts, servers, deferred, lines, trail)
    return RelayParts(relay, parts, servers, deferred)


# --- cleanup ----------------------------------------------------------------------------------------------------


def cleanup_interval(settings: Settings) -> float:
    """The seconds between two rounds of the cleanup."""
    return settings.core.cleanup_interval_seconds or float("inf")


def build_leases(settings: Settings, store: Store) -> Callable[[str], Lease] | None:
    """Return the function that gives the lease of a task by its name; None where no other replica can be."""
    if not store.shared:
        return None
    seconds = cleanup_interval(settings)
    return lambda name: Lease(store, f"cleanup/{name}", seconds)


def build_session_tasks(
    settings: Settings, store: Store, runtime: Runtime, parts: RelayParts
) -> list[CleanupTask]:
    """The tasks of the cleanup that concern sessions."""
    sessions = parts.sessions
    if store.shared:
        sessions.last_seen.others.extend(each.write_used for each in parts.servers.shared)
    idle = IdleSessions(
        SessionExpiry(sessions.sessions, store, runtime.clock),
        sessions.last_seen,
        sessions.upstream,
        parts.servers.by_id,
        cleanup_interval(settings),
        runtime.log,
    )
    tasks = [
        CleanupTask("sessions", idle.tend),
        CleanupTask("deferred answers", parts.deferred.expire),
        CleanupTask("held answers", parts.deferred.forget_expired, alone=False),
    ]
    if sessions.sessions.slots is not None:
        tasks.append(CleanupTask("session slots", sessions.sessions.slots.tidy))
    if sessions.shared_notifications is not None:
        tasks.append(CleanupTask("leases", lambda: tidy_leases(store, runtime.clock())))
        tasks.append(CleanupTask("notices", sessions.shared_notifications.claims.tidy))
    return tasks
