"""What all parts of the adapter are built on: what each of them contributes to the whole, and the sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.edge.http.request import Branch, LateBranches
from adapter.relay.background import BackgroundTasks
from adapter.relay.cleanup import CleanupTask
from adapter.relay.files.scopes import Scopes
from adapter.relay.notifications import MessageClaims, Notifications, SharedNotifications
from adapter.relay.server import Server
from adapter.relay.sessions.idle_sessions import LastSeen
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.renewal import Renewal
from adapter.relay.sessions.session_map import SessionLimits, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.settings.root import Settings
from adapter.state.watched import WatchedStore

if TYPE_CHECKING:
    from adapter.hosted.validation.workers import ValidationWorkers
    from adapter.pipeline.validation_stage import SchemaChecks
    from adapter.relay.sessions.shared_sessions import SharedSessions


class SharedChecks:
    """Builds the checks for the first part that wants them. ``close`` ends the processes that they have started.

    A proxy without stages never checks a value, so the checker of schemas is imported with the checks.
    """

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._log = logger
        self._workers: ValidationWorkers | None = None

    @cached_property
    def checks(self) -> SchemaChecks:
        """The checks, which start processes when they are needed."""
        from adapter.hosted.validation.workers import ValidationLimits, ValidationWorkers
        from adapter.pipeline.validation_stage import SchemaChecks

        self._workers = ValidationWorkers(ValidationLimits(), self._log)
        return SchemaChecks(self._workers, self._log)

    async def close(self) -> None:
        """End the processes."""
        if self._workers is not None:
            await self._workers.close()


class Base:
    """The settings, the store, the clock (Unix seconds), the log, the background tasks and the checks of values: all
    parts share them.

    A part adds what it brings when it is built: ``branches`` are routes beside mounts and health, ``tasks`` those of
    the cleanup. ``rereads`` read from the store what is read once, and again when it may be another one; what it has
    lost, it is given back. ``on_loss`` are called when the store has lost rows.

    Settings may change while the adapter serves, as far as servers and their defaults go: parts read them here when
    they need them. ``by_server`` are the mappings of all parts that have something for a server by its id; those of
    servers that change are emptied, and filled again. ``on_change`` are called when the settings are other ones.
    """

    def __init__(self, settings: Settings, store: WatchedStore) -> None:
        self.settings = settings
        self.store = store
        self.clock: Callable[[], float] = time.time
        self.log = log.get_logger("adapter")
        self.background = BackgroundTasks()
        self.checks = SharedChecks(self.log)
        self.branches: list[Branch | LateBranches] = []
        self.tasks: list[CleanupTask] = []
        self.rereads: list[Callable[[], Awaitable[None]]] = []
        self.on_loss: list[Callable[[], None]] = []
        self.servers: dict[str, Server] = {}
        """Those that are served, by their ids."""
        self.by_server: list[dict[str, Any]] = []
        self.on_change: list[Callable[[], None]] = []
        self.retiring: set[asyncio.Task[None]] = set()
        """The ends of servers that are served no more."""

    def shared_sessions(self, server: Server) -> SharedSessions:
        """Build the sessions that many requests share at this server."""
        # Late: clients have a session of their own unless the settings or their era say otherwise.
        from adapter.relay.sessions.shared_sessions import SharedSessions

        limits, idle_ttl = self.settings.core.upstream, self.settings.sessions.idle_ttl_seconds
        return SharedSessions(server, self.store, limits, idle_ttl=idle_ttl, clock=self.clock)

    def retire(self, end: Coroutine[Any, Any, None]) -> None:
        """Have that done meanwhile; the adapter does not stop before it is."""
        task = asyncio.get_running_loop().create_task(end)
        self.retiring.add(task)
        task.add_done_callback(self.retiring.discard)


# --- sessions ----------------------------------------------------------------------------------------------


class SessionStack(NamedTuple):
    """The sessions of clients, the scopes that own files and pins, and the sessions with upstreams.

    ``shared_notifications`` is None where no other process uses the store.
    """

    sessions: Sessions
    scopes: Scopes
    notifications: Notifications
    upstream: UpstreamSessions
    last_seen: LastSeen
    shared_notifications: SharedNotifications | None


def build_sessions(base: Base) -> SessionStack:
    """Build the parts that know about sessions."""
    store, limits = base.store, base.settings.sessions
    sessions = Sessions(
        store,
        SessionLimits(
            max_active=limits.max_active,
            max_in_flight=limits.max_in_flight_per_session,
            idle_ttl=limits.idle_ttl_seconds,
            allow_revival=limits.allow_revival,
            tombstone_ttl=limits.tombstone_ttl_seconds,
        ),
        base.clock,
    )
    notifications = Notifications()
    shared = None
    if store.shared:
        shared = SharedNotifications(store, notifications, MessageClaims(store, base.background, base.clock))
    scopes = Scopes(store, per_principal=limits.scope == "principal", clock=base.clock)
    base.on_loss.append(scopes.store_lost)
    return SessionStack(
        sessions,
        scopes,
        notifications,
        UpstreamSessions(
            sessions,
            PrincipalSessions(sessions, serves=limits.missing_id == "principal"),
            Renewal(sessions, base.background, base.log),
            limits.upstream_session_termination_retries,
        ),
        LastSeen(sessions),
        shared,
    )
