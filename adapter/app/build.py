"""The adapter, built: each object once, from the bottom up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING

from adapter import log
from adapter.app.base import build_sessions
from adapter.app.console import BuiltConsole, LazyConsole
from adapter.app.core import Core, build_cleanup, build_relay
from adapter.app.edge import build_front, build_guard, record
from adapter.app.files import FileSecrets
from adapter.app.servers import Servers, build_servers
from adapter.app.state import build_store, with_fallback
from adapter.app.tools import ToolGuards
from adapter.edge.health import Health
from adapter.edge.http.access import Bases
from adapter.edge.http.bodies import BodyLimits
from adapter.edge.http.buffers import RequestBuffers
from adapter.edge.http.limits import Patience
from adapter.edge.router import Front
from adapter.oauth.port import TokenVerifier
from adapter.relay.stages import StageTable
from adapter.settings.root import Settings
from adapter.state.port import Store, tell_all
from adapter.state.watched import MeasuredStore, WatchedStore

# The parts that only some settings ask for are imported where they do.
if TYPE_CHECKING:
    from adapter.app.measuring.parts import AdapterMetrics
    from adapter.pipeline.tracing import WalkRecorder
    from adapter.relay.mounts.merged import MergedMount
    from adapter.state.fallback import FallbackStore


class App(Core):
    """The adapter, built but not yet listening. ``bodies`` are the limits of all bodies that come in, ``patience``
    the times of clients; ``metering`` is None where nothing is counted.
    """

    metering: AdapterMetrics | None = None
    console: LazyConsole
    front: Front
    bodies: BodyLimits
    patience: Patience


def build(
    settings: Settings,
    tables: Mapping[str, StageTable] | None = None,
    store: Store | None = None,
    verifier: TokenVerifier | None = None,
) -> App:
    """Build the adapter. ``tables`` are the stages of servers by their ids, in place of those that settings ask for.

    ``store`` takes the place of the one that ``state_persistence`` describes, and ``verifier`` that of the one that
    ``core.auth.oauth`` describes. Raises SettingsError for a lock file, a statement or a script that cannot be used,
    and for telemetry that cannot be had.
    """
    registry = None
    store = store or build_store(settings)
    if settings.telemetry.measures:
        # Late: it loads the library of metrics.
        from adapter.app.measuring.parts import build_registry

        registry = build_registry()
        store = MeasuredStore(store, registry)
    fallback = with_fallback(settings, store, log.get_logger("adapter"))
    watched = WatchedStore(store) if fallback is None else WatchedStore(fallback, outage=fallback.reason)
    app = App(settings, watched)
    record(app, registry)
    if registry is not None:
        from adapter.app.measuring.parts import AdapterMetrics

        app.metering = AdapterMetrics(settings, registry, app.log, app.tracing)
    if fallback is not None:
        app.on_loss.append(fallback.store_lost)
    app.on_loss.append(lambda: tell_all(watched.listeners, methodcaller("rows_unknown")))
    _build_inside(app, tables or {})
    _build_edge(app, verifier)
    build_cleanup(app)
    if app.metering is not None:
        app.metering.attach(app, app.bodies.buffers, fallback)
    _follow_store(app, fallback)
    return app


def _build_inside(app: App, tables: Mapping[str, StageTable]) -> None:
    """Build the sessions, the files, the tools, the servers, and the relay over them. Raises SettingsError."""
    settings, metering = app.settings, app.metering
    if settings.asks_for_plans:
        # The stages of plans and the tools that run here are a third of all code, and a proxy needs none of it.
        from adapter.app.tool_plans import compiled, shared_parts

        app.plans = compiled(settings, app.log, _observing(app), app.checks, shared=shared_parts(app))
        app.by_server += [app.plans.servers, app.plans.planning.caches]
    sessions = app.session_parts = build_sessions(app)
    if any(entry.has_files for entry in settings.servers):
        from adapter.app.file_stages import KeptFiles

        app.files = KeptFiles(app, sessions)
    else:
        app.files = FileSecrets(app, sessions)
    app.tools = ToolGuards(app, sessions, app.files, app.plans)
    if app.store.shared:
        from adapter.app.replicas import ReplicaService

        app.replicas = ReplicaService(app, alone=not settings.has_other_workers)
    if any(entry.upstream.auth.type == "authorization_code" for entry in settings.servers):
        from adapter.app.access.grants import UpstreamGrants

        app.grants = UpstreamGrants(app)
    observed = None if metering is None else metering.observed
    stages_of = app.tools.tables(tables)
    app.server_parts = build_servers(
        Servers(app, stages_of, app.plans, app.replicas, app.grants, observed, app.servers)
    )
    build_relay(app, None if metering is None else metering.operations)
    app.merged = build_mounts(app)
    if metering is not None:
        metering.observe_files(app.files, settings)


def build_mounts(app: App, kept: Mapping[str, MergedMount] = MappingProxyType({})) -> Sequence[MergedMount]:
    """The merged mounts of the settings, in their order. Those that are ``kept``, by their ids, stay as they are."""
    settings = app.settings
    if not settings.mounts:
        return ()
    # Late: most adapters have an address for each server.
    from adapter.app.mounts import build_mount

    documents = frozenset[str]().union(*(app.files.of(each).documents for each in settings.servers))
    return [kept.get(each.id) or build_mount(app, each, documents) for each in settings.mounts]


def _observing(app: App) -> WalkRecorder | None:
    """The observer of calls while they go through their plans; None if nothing observes them."""
    if app.metering is None and app.recent is None:
        return None
    from adapter.pipeline.tracing import WalkRecorder
    from adapter.relay.http_api.recent_exchanges import begin_stage

    counts = None if app.metering is None else app.metering.registry
    return WalkRecorder(app.tracing, counts, None if app.recent is None else begin_stage)


def _build_edge(app: App, verifier: TokenVerifier | None) -> None:
    """Build what decides about requests before the relay sees them, and the routes of everything inside."""
    settings, core = app.settings, app.settings.core
    if verifier is None and core.auth.oauth is not None and core.auth.enabled:
        from adapter.app.access.oauth_callers import build_verifier

        verifier = build_verifier(core.auth.oauth, app.log)
    app.guard = guard = build_guard(settings, verifier, app.log)
    app.bases = Bases(core.public_base_url, guard, core.trusted_proxies)
    app.health = Health(
        app.servers.values(),
        app.server_parts.monitors,
        app.tools.pin_review,
        app.sessions,
        app.store,
        guard,
        settings,
        None if app.replicas is None else app.replicas.replicas,
    )
    if settings.console.enabled and settings.console.oauth is not None and verifier is not None:
        from adapter.app.access.oauth_callers import build_browser_sign_in

        app.sign_in = build_browser_sign_in(app, settings.console.oauth, guard, verifier)
    app.console = _console(app)
    app.branches += app.files.branches(guard, app.trail, app.tracing)
    if app.grants is not None:
        browsers = None if app.sign_in is None else app.sign_in.routes
        app.branches.append(app.grants.branch(guard, browsers, authenticated=core.auth.enabled))
    if app.metering is not None:
        app.branches += app.metering.branches(guard, settings)
    if app.plans is not None:
        app.plans.require()
    app.front = build_front(app)
    app.bodies = BodyLimits(RequestBuffers(core.max_buffered_bytes, largest=core.max_request_bytes))
    app.patience = Patience()


def _console(app: App) -> LazyConsole:
    if app.recent is not None and app.replicas is not None:
        # Late, as the console. Not with it: other replicas may watch while nobody looks here.
        from adapter.relay.http_api.shared_exchanges import SharedExchanges

        replica = app.replicas.replicas.id
        app.shared_exchanges = SharedExchanges(app.recent, app.store, app.background, replica)

    def build_it() -> BuiltConsole:
        from adapter.app.console_branches import build_branches

        return build_branches(app, console.known)

    console = LazyConsole(app, build_it)
    if app.recent is not None:
        app.recent.on_close.append(console.end_streams)
    if app.settings.console.auth_hook is not None:
        console.build()
    return console


def _follow_store(app: App, fallback: FallbackStore | None) -> None:
    """Have everybody be told when the store is another one, or is back."""
    if fallback is not None:
        fallback.on_return += app.rereads
    if app.replicas is None:
        return
    # Late: most adapters are one process.
    from adapter.relay.sessions.upstream_sessions import LostSessions

    others = [app.server_parts.end_lost, app.replicas.end_lost]
    lost = LostSessions(app.sessions, others, app.background)
    epoch = app.replicas.replicas.epoch
    epoch.shared += app.rereads
    epoch.on_loss += (*app.on_loss, lost.store_lost)
