"""The adapter, built: each object once, from the bottom up."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import TYPE_CHECKING

from adapter import log
from adapter.app.base import Base
from adapter.app.console import BuiltConsole, ConsoleParts
from adapter.app.core import Core
from adapter.app.edge import (
    Observation,
    build_body_terms,
    build_front,
    build_guard,
    build_health,
    build_observation,
)
from adapter.app.files import FileParts
from adapter.app.relay import build_cleanup, build_relay
from adapter.app.servers import Upstreams, build_servers
from adapter.app.sessions import SessionParts, build_sessions
from adapter.app.state import build_store, with_fallback
from adapter.app.tools import ToolParts
from adapter.app.validation import SharedChecks
from adapter.edge.http.access import Bases, Guard
from adapter.edge.http.bodies import BodyTerms
from adapter.edge.router import Front
from adapter.oauth.port import TokenVerifier
from adapter.relay.cleanup import CleanupTask
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import StageTable
from adapter.settings.root import Settings
from adapter.state.port import Store, tell_all
from adapter.state.watched import WatchedStore

# The parts that only some settings ask for are imported where they do.
if TYPE_CHECKING:
    from adapter.app.access.browser_sign_in import BrowserSignIn
    from adapter.app.access.grants import GrantParts
    from adapter.app.measuring.parts import Metering
    from adapter.app.replicas import ReplicaParts
    from adapter.app.tool_plans import Compiled
    from adapter.state.fallback import FallbackStore


class App(Core):
    """The adapter, built but not yet listening. ``bodies`` are the limits of all bodies that come in; ``metering`` is
    None where nothing is counted.
    """

    observation: Observation
    metering: Metering | None
    console: ConsoleParts
    front: Front
    bodies: BodyTerms

    @property
    def sessions(self) -> Sessions:
        """The sessions of clients."""
        return self.relay.sessions.sessions

    @property
    def servers(self) -> Mapping[str, Server]:
        """The servers by id."""
        return self.relay.servers.by_id


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
    observation = build_observation(settings)
    store = _counted(store or build_store(settings), observation)
    fallback = with_fallback(settings, store, log.get_logger("adapter"))
    watched = WatchedStore(store) if fallback is None else WatchedStore(fallback, outage=fallback.reason)
    app = App(settings, watched)
    app.observation = observation
    app.metering = _metering(app, observation)
    if fallback is not None:
        app.on_loss.append(fallback.store_lost)
    app.on_loss.append(lambda: tell_all(watched.listeners, methodcaller("rows_unknown")))
    _build_inside(app, tables or {})
    _build_edge(app, verifier or _verifier(app))
    app.cleanup = build_cleanup(app, app.relay)
    if app.metering is not None:
        app.metering.attach(app, app.bodies.buffers, fallback)
    _follow_store(app, fallback)
    return app


def _build_inside(app: App, tables: Mapping[str, StageTable]) -> None:
    """Build the sessions, the files, the tools, the servers, and the relay over them."""
    app.checks = SharedChecks(app.log)
    app.plans = _plans(app, app.observation, app.checks)
    sessions = build_sessions(app)
    app.files = _files(app, sessions)
    app.tools = ToolParts(app, sessions, app.files, app.plans)
    app.replicas = _replicas(app)
    app.grants = _grants(app)
    hosting = None if app.plans is None else app.plans.hosting
    observed = None if app.metering is None else app.metering.observed
    upstreams = Upstreams(app, hosting, app.replicas, app.grants, observed)
    servers = build_servers(upstreams, app.tools.tables(tables))
    app.tools.servers.update(servers.by_id)
    counts = None if app.metering is None else app.metering.operations
    app.relay = build_relay(app, sessions, servers, counts)
    if app.metering is not None:
        app.metering.observe_files(app.files, app.settings)


def _build_edge(app: App, verifier: TokenVerifier | None) -> None:
    """Build what decides about requests before the relay sees them, and the routes of everything inside."""
    core = app.settings.core
    app.guard = guard = build_guard(app.settings, verifier)
    app.bases = Bases(core.public_base_url, guard, core.trusted_proxies)
    app.health = build_health(app, app.relay, app.tools.pin_review, guard, app.replicas)
    app.sign_in = _sign_in(app, guard, verifier)
    app.console = _console(app)
    app.branches += app.files.branches(guard, app.relay.trail, app.observation.tracing)
    if app.grants is not None:
        browsers = None if app.sign_in is None else app.sign_in.routes
        app.branches.append(app.grants.branch(guard, browsers, authenticated=core.auth.enabled))
    if app.metering is not None:
        app.branches += app.metering.branches(guard, app.settings)
    if app.plans is not None:
        app.plans.require()
    app.front = build_front(app, app.observation)
    app.bodies = build_body_terms(app.settings)


def _follow_store(app: App, fallback: FallbackStore | None) -> None:
    """Have everybody be told when the store is another one, or is back."""
    if fallback is not None:
        fallback.on_return += app.rereads
    if app.replicas is None:
        return
    # Late: most adapters are one process.
    from adapter.relay.sessions.lost_sessions import LostSessions

    others = [*(each.end_lost for each in app.relay.servers.shared), app.replicas.end_lost]
    lost = LostSessions(app.sessions, app.store, others, app.background, app.clock)
    epoch = app.replicas.replicas.epoch
    epoch.shared += app.rereads
    epoch.on_loss += (*app.on_loss, lost.store_lost)


# --- parts that only some settings ask for ----------------------------------------------------------------------


def _counted(store: Store, observation: Observation) -> Store:
    if observation.registry is None:
        return store
    from adapter.state.measured import MeasuredStore

    return MeasuredStore(store, observation.registry)


def _plans(base: Base, observation: Observation, checks: SharedChecks) -> Compiled | None:
    """Compile the plans of tools. Raises SettingsError."""
    if not base.settings.asks_for_plans:
        return None
    # The stages of plans and the tools that run here are a third of all code, and a proxy needs none of it.
    from adapter.app.tool_plans import compiled, shared_parts

    return compiled(base.settings, base.log, observation.of_plans(), checks, shared=shared_parts(base))


def _files(base: Base, sessions: SessionParts) -> FileParts:
    if not any(entry.adapters for entry in base.settings.servers):
        return FileParts(base, sessions)
    from adapter.app.file_stages import ActiveFiles

    return ActiveFiles(base, sessions)


def _replicas(base: Base) -> ReplicaParts | None:
    if not base.store.shared:
        return None
    from adapter.app.replicas import ReplicaParts

    return ReplicaParts(base, alone=not base.settings.has_other_workers)


def _grants(base: Base) -> GrantParts | None:
    if all(entry.upstream.auth.type != "authorization_code" for entry in base.settings.servers):
        return None
    from adapter.app.access.grants import GrantParts

    return GrantParts(base)


def _metering(base: Base, observation: Observation) -> Metering | None:
    if observation.registry is None:
        return None
    from adapter.app.measuring.parts import Metering

    spans = None if observation.telemetry is None else observation.telemetry.requests
    return Metering(base.settings, observation.registry, base.log, spans)


def _verifier(base: Base) -> TokenVerifier | None:
    auth = base.settings.core.auth
    if auth.oauth is None or not auth.enabled:
        return None
    from adapter.app.access.verification import build_verifier

    return build_verifier(auth.oauth, base.log)


def _sign_in(base: Base, guard: Guard, verifier: TokenVerifier | None) -> BrowserSignIn | None:
    console = base.settings.console
    if not console.enabled or console.oauth is None or verifier is None:
        return None
    from adapter.app.access.browser_sign_in import build_browser_sign_in

    sign_in = build_browser_sign_in(base.settings, console.oauth, base.store, guard, verifier)
    base.tasks.append(CleanupTask("sign-ins", sign_in.flow.tidy))
    base.rereads.append(sign_in.sessions.read_key)
    return sign_in


def _console(app: App) -> ConsoleParts:
    observation = app.observation
    if observation.recent is not None and app.replicas is not None:
        # Late, as the console. Not with it: other replicas may watch while nobody looks here.
        from adapter.relay.http_api.shared_exchanges import SharedExchanges

        replica = app.replicas.replicas.id
        shared = SharedExchanges(observation.recent, app.store, app.background, replica)
        observation = observation._replace(shared=shared)

    def build_it() -> BuiltConsole:
        from adapter.app.console_branches import build_branches

        return build_branches(app, observation)

    console = ConsoleParts(app, build_it)
    if app.settings.console.auth_hook is not None:
        console.build()
    return console
