"""The adapter, built: each object once, from the bottom up."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING

from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.app.console import ConsoleAccess, ConsoleParts, ConsoleSurroundings, build_console
from adapter.app.edge import Observation, build_body_terms, build_door, build_front, build_observation
from adapter.app.files import FileParts, FileStages
from adapter.app.optional_parts import (
    OptionalParts,
    build_grants,
    build_plans,
    build_replicas,
    build_shared,
    build_sign_in,
    build_verifier,
)
from adapter.app.relay import (
    RelayParts,
    Runtime,
    SessionParts,
    build_leases,
    build_relay,
    build_session_tasks,
    build_sessions,
    cleanup_interval,
)
from adapter.app.servers import Servers, build_servers
from adapter.app.state import build_store, with_fallback
from adapter.app.tools import ToolParts
from adapter.app.validation import SharedChecks
from adapter.edge.http.access import Guard
from adapter.edge.http.bodies import BodyTerms
from adapter.edge.http.request import Branch, LateBranches
from adapter.edge.router import Front
from adapter.oauth.port import TokenVerifier
from adapter.relay.background import BackgroundTasks
from adapter.relay.cleanup import Cleanup, CleanupTask
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.stages import StageTable
from adapter.settings.root import Settings
from adapter.state.listeners import tell_all
from adapter.state.port import Store
from adapter.state.watched import WatchedStore

if TYPE_CHECKING:
    from adapter.app.access.grants import GrantParts
    from adapter.app.measuring.parts import Metering
    from adapter.app.replicas import ReplicaParts
    from adapter.app.tool_plans import Compiled
    from adapter.state.fallback import FallbackStore


@dataclass(frozen=True, slots=True)
class Core:
    """The parts behind the edge. ``cleanup`` works through all of them from time to time.

    ``plans`` is None where the settings ask for none, ``replicas`` where no other process uses the state store,
    ``grants`` where no upstream needs the authorization of people.
    """

    store: WatchedStore
    plans: Compiled | None
    checks: SharedChecks
    files: FileParts
    relay: RelayParts
    cleanup: Cleanup
    replicas: ReplicaParts | None
    grants: GrantParts | None


@dataclass(frozen=True, slots=True)
class App:
    """The adapter, built but not yet listening. ``bodies`` are the limits of all bodies that come in; ``metering`` is
    None where nothing is counted.
    """

    settings: Settings
    runtime: Runtime
    observation: Observation
    core: Core
    console: ConsoleParts
    front: Front
    bodies: BodyTerms
    metering: Metering | None = None

    @property
    def sessions(self) -> Sessions:
        """The sessions of clients."""
        return self.core.relay.sessions.sessions

    @property
    def servers(self) -> Mapping[str, Server]:
        """The servers by id."""
        return self.core.relay.servers.by_id


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
    logger = log.get_logger("adapter")
    metering = _metering(settings, observation, logger)
    runtime = Runtime(time.time, logger, BackgroundTasks(), metering)
    store = _counted(store or build_store(settings), observation)
    fallback = with_fallback(settings, store, runtime.log)
    watched = WatchedStore(store) if fallback is None else WatchedStore(fallback, outage=fallback.reason)
    checks = SharedChecks(settings.validation, runtime.log)
    shared = build_shared(settings, watched, runtime)
    plans = build_plans(settings, runtime, observation, checks, shared)
    sessions = build_sessions(settings, watched, runtime)
    files = FileStages(settings, runtime, FileParts(settings, watched, runtime, sessions))
    tools = ToolParts(settings, watched, runtime, sessions, files, plans)
    replicas = build_replicas(settings, watched, runtime)
    grants = build_grants(settings, watched, runtime)
    servers = build_servers(settings, watched, runtime, plans, replicas, tools.tables(tables or {}), grants)
    tools.servers.update(servers.by_id)
    relay = build_relay(settings, watched, runtime, sessions, servers)
    if metering is not None:
        metering.observe_files(files.parts, settings)
    files.parts.trail = relay.trail
    verifier = verifier or build_verifier(settings, runtime)
    others = None if replicas is None else replicas.replicas
    door = build_door(settings, watched, relay, tools.pin_review, others, verifier)
    sign_in = build_sign_in(settings, watched, door.guard, verifier)
    optional = OptionalParts(shared, replicas, grants, sign_in, metering)
    console = build_console(
        settings,
        observation,
        ConsoleSurroundings(runtime, plans, checks, relay, files, door, ConsoleAccess(sign_in, grants)),
    )
    if plans is not None:
        plans.require()
    file_routes = _file_routes(files.parts, door.guard, observation)
    branches = _branches(settings, optional, console, file_routes, door.guard)
    front = build_front(settings, runtime, observation, relay, door, branches, grants)
    lost = _when_rows_are_lost(watched, runtime, sessions, servers, tools, replicas)
    _follow_store(optional, files.parts, fallback, lost)
    tasks = (
        *build_session_tasks(settings, watched, runtime, relay),
        *_cleanup_tasks(optional, console, servers, files.parts, tools),
    )
    cleanup = Cleanup(cleanup_interval(settings), tasks, runtime.log, build_leases(settings, watched))
    core = Core(watched, plans, checks, files.parts, relay, cleanup, replicas, grants)
    bodies = build_body_terms(settings)
    if metering is not None:
        metering.attach(core, bodies.buffers, fallback)
    return App(settings, runtime, observation, core, console, front, bodies, metering)


def _counted(store: Store, observation: Observation) -> Store:
    if observation.registry is None:
        return store
    # Late: most stores are not counted.
    from adapter.state.measured import MeasuredStore

    return MeasuredStore(store, observation.registry)


def _metering(settings: Settings, observation: Observation, logger: FilteringBoundLogger) -> Metering | None:
    if observation.registry is None:
        return None
    # Late: it loads the library of metrics.
    from adapter.app.measuring.parts import Metering

    spans = None if observation.telemetry is None else observation.telemetry.requests
    return Metering(settings, observation.registry, logger, spans)


def _branches(
    settings: Settings,
    optional: OptionalParts,
    console: ConsoleParts,
    files: Sequence[Branch],
    guard: Guard,
) -> list[Branch | LateBranches]:
    """The routes beside mounts and health."""
    branches: list[Branch | LateBranches] = [*console.late_branches(), *files]
    if optional.replicas is not None and optional.replicas.place is None:
        branches.append(optional.replicas.branch)
    if optional.grants is not None:
        browsers = None if optional.sign_in is None else optional.sign_in.routes
        authenticated = settings.core.auth.enabled
        branches.append(optional.grants.branch(guard, browsers, authenticated=authenticated))
    if optional.metering is not None:
        branches += optional.metering.branches(guard, settings)
    return branches


def _file_routes(files: FileParts, guard: Guard, observation: Observation) -> Sequence[Branch]:
    """The routes of files, each request to which is a span where spans are recorded."""
    routes = files.branches(guard)
    if observation.tracing is None:
        return routes
    # Late: few ask for traces.
    from adapter.edge.files.file_spans import traced

    return tuple(traced(routes, observation.tracing))


def _cleanup_tasks(
    optional: OptionalParts, console: ConsoleParts, servers: Servers, files: FileParts, tools: ToolParts
) -> Iterator[CleanupTask]:
    """The tasks of cleanup that are not about sessions of clients."""
    yield CleanupTask("shared sessions", servers.tidy, alone=False)
    yield CleanupTask("own files", files.tidy_own, alone=False)
    yield CleanupTask("files", files.tidy)
    yield CleanupTask("pins", tools.tidy)
    yield CleanupTask("console", console.tidy, alone=False)
    if optional.grants is not None:
        yield CleanupTask("grants", optional.grants.tidy)
    if optional.sign_in is not None:
        yield CleanupTask("sign-ins", optional.sign_in.flow.tidy)
    if optional.shared is not None:
        yield CleanupTask("shared results", optional.shared.tidy)


def _follow_store(
    optional: OptionalParts,
    files: FileParts,
    fallback: FallbackStore | None,
    when_rows_are_lost: Iterator[Callable[[], None]],
) -> None:
    """Have everybody be told when the store is another one, or is back."""
    shared = tuple(_shared_values(optional, files))
    if fallback is not None:
        fallback.on_return += shared
    if optional.replicas is not None:
        epoch = optional.replicas.replicas.epoch
        epoch.shared += shared
        epoch.on_loss += () if fallback is None else (fallback.store_lost,)
        epoch.on_loss += when_rows_are_lost


def _shared_values(optional: OptionalParts, files: FileParts) -> Iterator[Callable[[], Awaitable[None]]]:
    """What is read from the store once, and again when it may be another one; what it has lost, it is given back."""
    yield files.read_secrets
    if optional.sign_in is not None:
        yield optional.sign_in.sessions.read_key
    if optional.replicas is not None:
        yield optional.replicas.read_key


def _when_rows_are_lost(
    store: Store,
    runtime: Runtime,
    sessions: SessionParts,
    servers: Servers,
    tools: ToolParts,
    replicas: ReplicaParts | None,
) -> Iterator[Callable[[], None]]:
    """What is to be done when the store has lost rows; nothing where one process alone has it."""
    if replicas is None:
        return
    # Late: most adapters are one process.
    from adapter.relay.sessions.lost_sessions import LostSessions

    others = [*(shared.end_lost for shared in servers.shared), replicas.end_lost]
    lost = LostSessions(sessions.sessions, store, others, runtime.background, runtime.clock)
    yield lambda: tell_all(store.listeners, methodcaller("rows_unknown"))
    yield replicas.store_lost
    yield lost.store_lost
    yield sessions.scopes.store_lost
    yield tools.store_lost
