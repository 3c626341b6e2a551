"""The relay: what passes between clients and the servers, and the cleanup behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from adapter.app.base import Base
from adapter.app.servers import Servers
from adapter.app.sessions import SessionParts
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.dispatch import Relay
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.cleanup import Cleanup, CleanupTask
from adapter.relay.exchange import Exchanges
from adapter.relay.lease import Lease
from adapter.relay.lease import tidy as tidy_leases
from adapter.relay.sessions.idle_sessions import IdleSessions, SessionExpiry
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.upstream_sessions import SessionOpener

if TYPE_CHECKING:
    from adapter.files.audit_log import AuditLog
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.relay.call.operation_counts import OperationCounts

PARKED_TTL = 3600.0
"""Seconds for which an answer may still come on another stream."""


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
    base: Base, parts: SessionParts, servers: Servers, counts: OperationCounts | None = None
) -> RelayParts:
    """Build the relay over these sessions and servers; ``counts`` are of its operations."""
    settings, store = base.settings, base.store
    sessions, upstream_sessions = parts.sessions, parts.upstream
    tables = {name: server.stages for name, server in servers.by_id.items()}
    deferred = DeferredAnswers(store, tables, base.background, ttl=PARKED_TTL, clock=base.clock)
    serves = settings.sessions.missing_id == "principal"
    kept = PrincipalSessions(sessions, store, base.clock, serves=serves)
    by_id = servers.by_id
    sessions.cache.on_renewed = lambda server: by_id[server].began_anew() if server in by_id else None
    call_gate = CallGate(upstream_sessions, parts.scopes.of)
    relay = Relay(
        sessions,
        upstream_sessions,
        SessionOpener(sessions, upstream_sessions, kept, base.clock),
        call_gate,
        PassThrough(upstream_sessions, deferred, base.background),
        StagedExchange(call_gate, upstream_sessions, deferred, base.background),
        GetStreams(call_gate, upstream_sessions, deferred, parts.notifications),
    )
    lines, trail = None, None
    if settings.core.audit.enabled:
        # Late: most adapters keep no record.
        from adapter.app.policies.audit import build_trail

        lines, trail = build_trail(settings, base.background, base.log)
    if counts is not None or trail is not None:
        # Late: many adapters neither count nor keep a record.
        from adapter.relay.call.observed import ObservedRelay

        return RelayParts(ObservedRelay(relay, counts, trail), parts, servers, deferred, lines, trail)
    return RelayParts(relay, parts, servers, deferred)


# --- cleanup ----------------------------------------------------------------------------------------------------


def build_cleanup(base: Base, parts: RelayParts) -> Cleanup:
    """Build the cleanup, to which the sessions contribute too."""
    store, sessions = base.store, parts.sessions
    interval = base.settings.core.cleanup_interval_seconds or float("inf")
    idle = IdleSessions(
        SessionExpiry(sessions.sessions, store, base.clock),
        sessions.last_seen,
        parts.servers.by_id,
        interval,
        base.log,
    )
    tasks = [
        CleanupTask("sessions", idle.tend),
        CleanupTask("deferred answers", parts.deferred.expire),
        CleanupTask("held answers", parts.deferred.forget_expired, alone=False),
    ]
    if sessions.sessions.slots is not None:
        tasks.append(CleanupTask("session slots", sessions.sessions.slots.tidy))
    if sessions.shared_notifications is not None:
        tasks.append(CleanupTask("leases", lambda: tidy_leases(store, base.clock())))
        tasks.append(CleanupTask("notices", sessions.shared_notifications.claims.tidy))
        sessions.last_seen.others.extend(each.write_used for each in parts.servers.shared)
    leases = (lambda name: Lease(store, f"cleanup/{name}", interval)) if store.shared else None
    return Cleanup(interval, (*tasks, *base.tasks), base.log, leases)
