"""The adapter, built: each object once, from the bottom up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapter import log
from adapter.app.console import ConsoleAccess, ConsoleParts, ConsoleSurroundings, build_console
from adapter.app.edge import Observation, build_body_terms, build_door, build_front, build_observation
from adapter.app.files import FileParts, FileStages
from adapter.app.relay import (
    RelayParts,
    Runtime,
    build_leases,
    build_relay,
    build_session_tasks,
    build_sessions,
    cleanup_interval,
)
from adapter.app.servers import build_servers
from adapter.app.state import build_snapshots, with_fallback
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
from adapter.state.port import Store
from adapter.state.sqlite import SqliteStore
from adapter.state.watched import WatchedStore

if TYPE_CHECKING:
    from adapter.app.access.browser_sign_in import BrowserSignIn
    from adapter.app.access.grants import GrantParts
    from adapter.app.replicas import ReplicaParts
    from adapter.app.shared_stages import SharedParts
    from adapter.app.tool_plans import Compiled


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
    """The adapter, built but not yet listening. ``bodies`` are the limits of all bodies that come in."""

    settings: Settings
    runtime: Runtime
    observation: Observation
    core: Core
    console: ConsoleParts
    front: Front
    bodies: BodyTerms

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
    ``core.auth.oauth`` describes. Raises SettingsError for a lock file, a
    statement or a script that cannot be used, and for telemetry that cannot be had.
    """
    runtime = Runtime(time.time, log.get_logger("adapter"), BackgroundTasks())
    observation = build_observation(settings)
    store = store or build_store(settings)
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
    verifier = verifier or build_verifier(settings, runtime)
    files.parts.trail = relay.trail
    door = build_door(
        settings,
        watched,
        relay,
        tools.pin_review,
        None if replicas is None else replicas.replicas,
        verifier,
    )
    sign_in = build_sign_in(settings, watched, door.guard, verifier)
    console = build_console(
        settings,
        observation,
        ConsoleSurroundings(runtime, plans, checks, relay, files, door, ConsoleAccess(sign_in, grants)),
    )
    if plans is not None:
        plans.require()
    branches: list[Branch | LateBranches] = [*console.late_branches(), *files.parts.branches(door.guard)]
    if replicas is not None and replicas.place is None:
        branches.append(replicas.branch)
    if grants is not None:
        browsers = None if sign_in is None else sign_in.routes
        branches.append(grants.branch(door.guard, browsers, authenticated=settings.core.auth.enabled))
    front = build_front(settings, runtime, observation, relay, door, branches, grants)
    tasks = [
        *build_session_tasks(settings, watched, runtime, relay),
        CleanupTask("shared sessions", servers.tidy, alone=False),
        CleanupTask("own files", files.parts.tidy_own, alone=False),
        CleanupTask("files", files.parts.tidy),
        CleanupTask("pins", tools.tidy),
        CleanupTask("console", console.tidy, alone=False),
    ]
    if grants is not None:
        tasks.append(CleanupTask("grants", grants.tidy))
    if sign_in is not None:
        tasks.append(CleanupTask("sign-ins", sign_in.flow.tidy))
    if shared is not None:
        tasks.append(CleanupTask("shared results", shared.tidy))
    if fallback is not None:
        fallback.on_return.append(files.parts.read_secrets)
        if grants is not None:
            fallback.on_return.append(grants.rows.open_anew)
        if replicas is not None:
            fallback.on_return.append(replicas.read_key)
    cleanup = Cleanup(cleanup_interval(settings), tuple(tasks), runtime.log, build_leases(settings, watched))
    core = Core(watched, plans, checks, files.parts, relay, cleanup, replicas, grants)
    return App(settings, runtime, observation, core, console, front, build_body_terms(settings))


def build_shared(settings: Settings, store: Store, runtime: Runtime) -> SharedParts | None:
    """Build what stages share with other replicas; None where nobody else uses the store, or there are no stages."""
    if not (store.shared and settings.asks_for_plans):
        return None
    # Late, as the plans.
    from adapter.app.shared_stages import SharedParts

    servers = settings.servers
    caches = any(stages.cache.shared for entry in servers for stages in entry.stages.values())
    caches = caches or any(tool.cache.shared for entry in servers for tool in entry.tools.define)
    return SharedParts(store, runtime.background, caches=caches)


def build_plans(
    settings: Settings,
    runtime: Runtime,
    observation: Observation,
    checks: SharedChecks,
    shared: SharedParts | None,
) -> Compiled | None:
    """Compile the plans of tools; None where the settings ask for none. Raises SettingsError."""
    if not settings.asks_for_plans:
        return None
    # Late: the stages of plans and the tools that run here are a third of all code, and a proxy needs none of it.
    from adapter.app.tool_plans import compiled

    return compiled(settings, runtime.log, observation.of_plans(), checks, shared=shared)


def build_verifier(settings: Settings, runtime: Runtime) -> TokenVerifier | None:
    """Build the verifier of access tokens; None where none are accepted."""
    auth = settings.core.auth
    if auth.oauth is None or not auth.enabled:
        return None
    # Late: it loads cryptography.
    from adapter.app import oauth

    return oauth.build_verifier(auth.oauth, runtime.log)


def build_sign_in(
    settings: Settings, store: Store, guard: Guard, verifier: TokenVerifier | None
) -> BrowserSignIn | None:
    """Build the sign-in of people to the console; None where there is none."""
    if not settings.console.enabled or settings.console.oauth is None or verifier is None:
        return None
    # Late: it loads cryptography.
    from adapter.app.access.browser_sign_in import build_browser_sign_in

    return build_browser_sign_in(settings, settings.console.oauth, store, guard, verifier)


def build_grants(settings: Settings, store: Store, runtime: Runtime) -> GrantParts | None:
    """Build what asks people for grants; None where no upstream needs one."""
    if all(entry.upstream.auth.type != "authorization_code" for entry in settings.servers):
        return None
    # Late: few upstreams need them, and the library that seals them takes its time.
    from adapter.app.access.grants import GrantParts

    return GrantParts(settings, store, runtime)


def build_replicas(settings: Settings, store: Store, runtime: Runtime) -> ReplicaParts | None:
    """Build this process's part among several; None where it is the only one that uses the store."""
    if not store.shared:
        return None
    # Late: most adapters are one process.
    from adapter.app.replicas import ReplicaParts

    return ReplicaParts(settings, store, runtime, alone=not settings.has_other_workers)


def build_store(settings: Settings) -> Store:
    """Build the store that ``state_persistence`` describes. Raises SettingsError."""
    if settings.state_persistence.type == "memory":
        # Late: most adapters keep their state on disk.
        from adapter.state.memory import MemoryStore

        return build_snapshots(settings, log.get_logger("adapter")) or MemoryStore()
    if settings.state_persistence.type == "redis":
        # Late: its driver is an extra of the package.
        from adapter.app.redis_state import build_redis_store

        return build_redis_store(settings)
    wal = settings.state_persistence.disk.wal.enabled
    return SqliteStore(settings.state_path, wal=wal, shared=settings.has_other_workers)
