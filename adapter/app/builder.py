"""Every object is built once, bottom up."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.app import parts
from adapter.app.files import Filing
from adapter.app.hosted import Hosting
from adapter.app.http_api import Exploring, Surroundings, exploring
from adapter.app.shared_sessions import Sharing
from adapter.app.tool_plans import compiled, fault
from adapter.app.tools import Cataloguing, locks
from adapter.edge.health import Health
from adapter.edge.http.access import Guard
from adapter.edge.http.bodies import BodyTerms
from adapter.edge.http.public_urls import Bases
from adapter.edge.mcp.endpoint import Endpoint
from adapter.edge.mcp.ingress import Ingress
from adapter.edge.router import Front
from adapter.hosted.validation.workers import ValidationWorkers
from adapter.pipeline.tracing import Observing, Tracing
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.http_api.stage_timings import BothTracings, Waterfall
from adapter.relay.idle_sessions import Janitor
from adapter.relay.notifications import Notifications
from adapter.relay.relay import Relay
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import HealthMonitor
from adapter.relay.sessions.initialize import SessionOpener
from adapter.relay.sessions.late_sessions import LateSessions
from adapter.relay.sessions.principal_sessions import KeptSessions
from adapter.relay.sessions.scopes import Scopes
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions as SessionMapping
from adapter.relay.stages import Plan
from adapter.relay.tools.pin_review import PinReview
from adapter.relay.tools.pins import Pins
from adapter.relay.tools.wiring_watch import WiringWatch
from adapter.rules.results.exposure import told
from adapter.settings.problems import Problem, SettingsError
from adapter.settings.root import Settings
from adapter.state.port import Store
from adapter.state.watched import WatchedStore
from adapter.telemetry import Telemetry, TelemetryMissing, open_telemetry

PARKED_TTL = 3600.0
"""Seconds for which an answer may still come on another stream."""


@dataclass(slots=True)
class App:
    """The adapter, built but not yet listening."""

    settings: Settings
    store: WatchedStore
    servers: Mapping[str, Server]
    monitors: Mapping[str, HealthMonitor]
    wiring_watches: Sequence[WiringWatch]
    sessions: Sessions
    janitor: Janitor
    background: BackgroundTasks
    front: Front
    filing: Filing
    hosting: Hosting
    validation: ValidationWorkers
    exploring: Exploring
    telemetry: Telemetry | None
    calls: log.CallLog | None
    log: FilteringBoundLogger
    bodies: BodyTerms


def build(settings: Settings, plans: Mapping[str, Plan] | None = None, store: Store | None = None) -> App:
    """Build the adapter. ``plans`` are the stages of each server by its id; a server without any is piped.

    ``store`` takes the place of the one that ``state_persistence`` describes. Raises SettingsError for a lock file, a
    statement or a script that cannot be used, and for telemetry that cannot be had.
    """
    logger = log.get_logger("adapter")
    clock = time.time
    plans = plans or {}
    watched = WatchedStore(store or parts.store(settings))
    store = watched
    sessions = Sessions(store, parts.limits(settings), clock)
    scopes = Scopes(store, per_principal=settings.sessions.scope == "principal")
    notifications = Notifications()
    filing = Filing.of(settings, store, scopes, notifications, clock, logger)
    sessions.on_end.append(filing.end_session)
    background = BackgroundTasks()
    upstream_sessions = SessionMapping(
        sessions,
        LateSessions(background, logger),
        renewals=settings.sessions.upstream_session_termination_retries,
        clock=clock,
        log=logger,
    )
    telemetry = _telemetry(settings)
    recent = Recent() if settings.console.enabled else None
    made = compiled(settings, logger, _observing(telemetry, recent))
    cataloguing = Cataloguing(
        settings,
        filing,
        made.planning,
        notifications,
        Pins(store, clock),
        scopes,
        sessions,
        upstream_sessions,
        background,
        locks(settings),
        logger,
    )
    sessions.on_end.append(cataloguing.end_session)
    servers = {
        entry.id: parts.server(
            settings,
            entry,
            plans.get(entry.id) or cataloguing.guarded(entry, filing.plan(entry)),
            made.hosting,
        )
        for entry in settings.servers
    }
    cataloguing.servers.update(servers)
    sharing = Sharing(settings, servers.values(), store, clock)
    deferred = DeferredAnswers(
        store, {name: server.plan for name, server in servers.items()}, ttl=PARKED_TTL, clock=clock
    )
    kept = KeptSessions(sessions, store, clock, serves=settings.sessions.missing_id == "principal")
    opener = SessionOpener(sessions, upstream_sessions, kept, clock)
    relay = _relay(opener, sessions, upstream_sessions, deferred, background, scopes, notifications)
    guard = parts.guard(settings)
    bases = Bases(settings.core.public_base_url, guard, settings.core.trusted_proxies)
    monitors = _monitors(settings, servers, logger)
    wiring_watches = [
        WiringWatch(server, logger)
        for server in servers.values()
        if server.id not in monitors and server.wiring.configured
    ]
    calls = log.CallLog(sys.stderr.buffer) if settings.core.access_log else None
    tracing = None if telemetry is None else telemetry.tracing
    health = _health(settings, servers, monitors, sessions, guard, watched, cataloguing.pin_review)
    around = Surroundings(
        relay,
        servers,
        monitors,
        health,
        sessions,
        filing,
        cataloguing.pin_review,
        guard,
        bases,
        background,
        made.loading,
        made.checks,
        logger,
        calls,
        tracing,
    )
    explored = exploring(settings, around, recent)
    made.require()
    front = _front(settings, around, explored, recent)
    interval = settings.core.cleanup_interval_seconds or float("inf")
    rounds = (sharing.tidy, filing.tidy, cataloguing.tidy, explored.tidy)
    janitor = Janitor(sessions, upstream_sessions, deferred, servers, interval, logger, rounds)
    return App(
        settings,
        watched,
        servers,
        monitors,
        wiring_watches,
        sessions,
        janitor,
        background,
        front,
        filing,
        made.hosting,
        made.workers,
        explored,
        telemetry,
        calls,
        logger,
        parts.bodies(settings),
    )


def _telemetry(settings: Settings) -> Telemetry | None:
    """Raises SettingsError for telemetry that cannot be had."""
    try:
        return open_telemetry(settings.telemetry, redact=told, fault=fault)
    except TelemetryMissing as missing:
        problem = Problem(missing.setting, str(missing))
        raise SettingsError([settings.traced(problem)]) from None


def _front(settings: Settings, around: Surroundings, explored: Exploring, recent: Recent | None) -> Front:
    """The door to all of it: mounts, the paths that tell how the adapter is, and the branches beside them."""
    health = around.health
    endpoint = Endpoint(
        around.relay,
        around.guard,
        Ingress(
            settings.core.max_request_bytes,
            max_values=settings.core.max_request_values,
            max_members=settings.core.max_batch_members,
        ),
        around.log,
        around.bases,
        legacy_statuses=settings.core.errors.legacy_status == "http",
        tracing=around.tracing,
    )
    return Front(
        endpoint,
        mounts={server.mount: server for server in around.servers.values()},
        routes={"/healthz": health.show, "/livez": health.live, "/readyz": health.ready},
        guard=around.guard,
        log=around.log,
        calls=around.calls,
        branches=[*explored.branches, *around.filing.branches(around.sessions, around.guard)],
        recent=recent,
    )


def _monitors(
    settings: Settings, servers: Mapping[str, Server], logger: FilteringBoundLogger
) -> dict[str, HealthMonitor]:
    """The monitors that ping the servers, by server id, for each server where pings are enabled."""
    return {
        entry.id: HealthMonitor(servers[entry.id], parts.ping(settings, entry), time.time, logger)
        for entry in settings.servers
        if settings.ping_for(entry).enabled
    }


def _observing(telemetry: Telemetry | None, recent: Recent | None) -> Observing | None:
    """The observer of calls while they go through their plans; None if nothing observes them."""
    waterfall = None if recent is None else Waterfall()
    if telemetry is None:
        return None if waterfall is None else Observing(waterfall)
    tracing: Tracing = telemetry.tracing if waterfall is None else BothTracings(telemetry.tracing, waterfall)
    return Observing(tracing, telemetry.measures)


def _relay(
    opener: SessionOpener,
    sessions: Sessions,
    upstream_sessions: SessionMapping,
    deferred: DeferredAnswers,
    background: BackgroundTasks,
    scopes: Scopes,
    notifications: Notifications,
) -> Relay:
    call_gate = CallGate(upstream_sessions, scopes.of)
    return Relay(
        sessions,
        upstream_sessions,
        opener,
        call_gate,
        PassThrough(upstream_sessions, deferred, background),
        StagedExchange(call_gate, upstream_sessions, deferred, background),
        GetStreams(call_gate, upstream_sessions, deferred, notifications),
    )


def _health(
    settings: Settings,
    servers: Mapping[str, Server],
    monitors: Mapping[str, HealthMonitor],
    sessions: Sessions,
    guard: Guard,
    store: WatchedStore,
    pin_review: PinReview,
) -> Health:
    return Health(
        servers=list(servers.values()),
        monitors=monitors,
        sessions=sessions,
        guard=guard,
        persistence=settings.state_persistence.type,
        clock=time.time,
        begun=time.time(),
        max_start_wait=settings.core.max_start_wait_seconds,
        store=store,
        readiness=settings.core.readiness,
        pin_review=pin_review,
    )
