"""The parts of the adapter that its console shows and its metrics count: the relay, and the cleanup behind it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapter import log
from adapter.app.base import Base, SessionStack
from adapter.app.files import FileSecrets
from adapter.app.servers import Servers
from adapter.app.tools import ToolGuards
from adapter.edge.health import Health
from adapter.edge.http.access import Bases, Guard
from adapter.errors import AuditUnavailable
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.dispatch import Relay
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.cleanup import Cleanup, CleanupTask, Lease
from adapter.relay.cleanup import tidy as tidy_leases
from adapter.relay.exchange import Exchanges
from adapter.relay.sessions.idle_sessions import IdleSessions
from adapter.relay.sessions.session_map import Sessions
from adapter.settings.section import Problem, SettingsError

if TYPE_CHECKING:
    from adapter.app.access.grants import UpstreamGrants
    from adapter.app.access.oauth_callers import BrowserSignIn
    from adapter.app.hosted import HostedTools
    from adapter.app.replicas import ReplicaService
    from adapter.edge.telemetry import ServerSpans
    from adapter.files.audit_log import AuditLog
    from adapter.relay.call.audit_trail import AuditTrail
    from adapter.relay.call.observed import OperationCounts
    from adapter.relay.http_api.recent_exchanges import Recent
    from adapter.relay.http_api.shared_exchanges import SharedExchanges
    from adapter.relay.mounts.merged import MergedMount
    from adapter.rules.calls.tracing import Tracer
    from adapter.telemetry import Telemetry


class Core(Base):
    """Each part is set once, when it is built. ``cleanup`` works through all of them from time to time.

    What has a default is None where the settings do not ask for it: ``replicas`` where no other process uses the state
    store, ``grants`` where no upstream needs the authorization of people, ``sign_in``
    where nobody signs in to the console. Exchanges are recorded by ``calls`` (the access log), ``recent``
    (those that the console shows), ``shared_exchanges`` (those of other processes) and ``trail``, which writes to
    ``audit``.
    """

    telemetry: Telemetry | None = None
    calls: log.CallLog | None = None
    recent: Recent | None = None
    shared_exchanges: SharedExchanges | None = None
    audit: AuditLog | None = None
    trail: AuditTrail | None = None

    plans: HostedTools | None = None
    session_parts: SessionStack
    files: FileSecrets
    tools: ToolGuards
    replicas: ReplicaService | None = None
    grants: UpstreamGrants | None = None
    server_parts: Servers
    deferred: DeferredAnswers
    relay: Exchanges
    merged: Sequence[MergedMount] = ()

    guard: Guard
    bases: Bases
    health: Health
    sign_in: BrowserSignIn | None = None
    cleanup: Cleanup

    @property
    def sessions(self) -> Sessions:
        """The sessions of clients."""
        return self.session_parts.sessions

    @property
    def tracing(self) -> Tracer | None:
        """The spans of calls."""
        return None if self.telemetry is None else self.telemetry.tracing

    def server_spans(self) -> ServerSpans | None:
        """Build the spans of what clients ask; None where none are recorded."""
        if self.telemetry is None:
            return None
        from adapter.edge.telemetry import ServerSpans

        return ServerSpans(self.telemetry.tracing)


PARKED_TTL = 3600.0
"""Seconds for which an answer may still come on another stream."""


# --- requests ---------------------------------------------------------------------------------------------------


def build_relay(app: Core, counts: OperationCounts | None = None) -> None:
    """Build the relay over the sessions and servers, and its audit log; ``counts`` are of its operations."""
    settings, store, parts, by_id = app.settings, app.store, app.session_parts, app.servers
    sessions, upstream_sessions = parts.sessions, parts.upstream
    app.deferred = DeferredAnswers(
        store, app.server_parts.tables, app.background, ttl=PARKED_TTL, clock=app.clock
    )
    sessions.cache.on_renewed = lambda server: by_id[server].began_anew() if server in by_id else None
    call_gate = CallGate(upstream_sessions, parts.scopes.of)
    relay = app.relay = Relay(
        sessions,
        upstream_sessions,
        call_gate,
        PassThrough(upstream_sessions, app.deferred),
        StagedExchange(call_gate, app.deferred),
        GetStreams(call_gate, app.deferred, parts.notifications),
    )
    if settings.core.audit.enabled:
        _keep_record(app)
    if counts is not None or app.trail is not None:
        # Late: many adapters neither count nor keep a record.
        from adapter.relay.call.observed import ObservedRelay

        app.relay = ObservedRelay(relay, counts, app.trail)


def _keep_record(app: Core) -> None:
    """Build the log of calls, and the trail that writes it. Raises SettingsError if the log cannot be written."""
    # Late: most adapters keep no record.
    from adapter.files.audit_log import AuditLog
    from adapter.relay.call.audit_trail import AuditTrail

    audit, replica = app.settings.core.audit, app.settings.core.replica
    place = (("replica", (replica.id or socket.gethostname())[:64]), ("pid", os.getpid()))
    app.audit = AuditLog(audit.file)
    try:
        app.audit.require()
    except AuditUnavailable as error:
        why = error.__cause__
        sentence = f"{audit.file} cannot be written: {getattr(why, 'strerror', None) or why}"
        raise SettingsError([Problem("core.audit.file", sentence)]) from None
    app.trail = AuditTrail(app.audit, audit, place, app.background, app.log)


# --- cleanup ----------------------------------------------------------------------------------------------------


def build_cleanup(app: Core) -> None:
    """Build the cleanup, to which the sessions contribute too."""
    store, sessions = app.store, app.session_parts
    interval = app.settings.core.cleanup_interval_seconds or float("inf")
    idle = IdleSessions(sessions.sessions, sessions.last_seen, app.servers, interval, app.log)
    tasks = [
        CleanupTask("sessions", idle.tend),
        CleanupTask("deferred answers", app.deferred.expire),
        CleanupTask("held answers", app.deferred.forget_expired, alone=False),
    ]
    if sessions.sessions.slots is not None:
        tasks.append(CleanupTask("session slots", sessions.sessions.slots.tidy))
    if sessions.shared_notifications is not None:
        tasks.append(CleanupTask("leases", lambda: tidy_leases(store, app.clock())))
        tasks.append(CleanupTask("notices", sessions.shared_notifications.claims.tidy))
        sessions.last_seen.others.append(app.server_parts.write_used)
    leases = (lambda name: Lease(store, f"cleanup/{name}", interval)) if store.shared else None
    app.cleanup = Cleanup(interval, (*tasks, *app.tasks), app.log, leases)
