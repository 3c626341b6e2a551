"""The console, built at the first request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from adapter.edge.http.request import Branch, LateBranches
from adapter.relay.background import SingleFlight
from adapter.settings.root import Settings

if TYPE_CHECKING:
    from adapter.app.access.browser_sign_in import BrowserSignIn
    from adapter.app.access.grants import GrantParts
    from adapter.app.edge import Door, Observation
    from adapter.app.files import FileStages
    from adapter.app.relay import RelayParts, Runtime
    from adapter.app.tool_plans import Compiled
    from adapter.app.validation import SharedChecks
    from adapter.relay.http_api.sessions import HttpSessions


class ConsoleAccess(NamedTuple):
    """The sign-in of people, and their grants for upstreams; None where there are none."""

    sign_in: BrowserSignIn | None = None
    grants: GrantParts | None = None


class ConsoleSurroundings(NamedTuple):
    """The parts of the adapter that the console shows and calls. ``plans`` is None where there are none."""

    runtime: Runtime
    plans: Compiled | None
    checks: SharedChecks
    relay: RelayParts
    files: FileStages
    door: Door
    access: ConsoleAccess = ConsoleAccess()


class BuiltConsole(NamedTuple):
    """The routes of the console, and the sessions of its callers by server."""

    branches: Sequence[Branch] = ()
    sessions: Mapping[str, HttpSessions] = {}


class ConsoleParts:
    """The console. It is seldom opened, so its code, its page and its document are loaded at the first request below
    ``console.path``: at rest they would be memory that nobody uses, and time of every start.
    """

    def __init__(self, settings: Settings, observation: Observation, around: ConsoleSurroundings) -> None:
        self._settings = settings
        self._observation = observation
        self._around = around
        self._built: BuiltConsole | None = None if settings.console.enabled else BuiltConsole()
        self._building = SingleFlight[None, BuiltConsole]()

    @property
    def branches(self) -> Sequence[Branch]:
        """The routes, none where the console is off."""
        return self.build().branches

    @property
    def sessions(self) -> Mapping[str, HttpSessions]:
        """The sessions of its callers by server."""
        return self.build().sessions

    def late_branches(self) -> Sequence[LateBranches]:
        """The routes before they are built, none where the console is off."""
        console = self._settings.console
        return [LateBranches(console.path, self._load)] if console.enabled else []

    def build(self) -> BuiltConsole:
        """Build the console unless it is built. A hook that cannot be loaded is noted as a problem of the plans."""
        if self._built is None:
            from adapter.app.console_branches import build_branches

            self._built = build_branches(self._settings, self._observation, self._around)
        return self._built

    async def _load(self) -> Sequence[Branch]:
        # In a thread, since the loop would stand still for the imports. It goes on when who asked first has left: the
        # next request must not build a second console, as only one is tidied and closed.
        return (await self._building.get(None, partial(asyncio.to_thread, self.build))).branches

    async def tidy(self) -> None:
        """Close sessions that are idle for too long. Raises StoreUnavailable."""
        if self._built is None and await self._has_overdue():
            await self._load()
        if self._built is not None:
            await asyncio.gather(*(sessions.tidy() for sessions in self._built.sessions.values()))

    async def close(self, within: float) -> None:
        """End the sessions of all callers, upstream as far as that takes no longer than ``within`` seconds."""
        if self._built is not None:
            await asyncio.gather(*(sessions.close(within) for sessions in self._built.sessions.values()))

    async def _has_overdue(self) -> bool:
        """Tell whether sessions are due that other processes have left, perhaps before this one began."""
        runtime, store = self._around.runtime, self._around.door.health.store
        if not store.shared:
            return False
        from adapter.relay.http_api.session_rows import table_of

        for server in self._settings.servers:
            if await store.overdue(table_of(server.id), runtime.clock(), limit=1):
                return True
        return False


def build_console(settings: Settings, observation: Observation, around: ConsoleSurroundings) -> ConsoleParts:
    """Build the console, where it is on. A hook that cannot be loaded is noted as a problem of the plans."""
    store, replicas = around.door.health.store, around.door.health.replicas
    if observation.recent is not None and replicas is not None:
        # Late, as the console. Not with it: other replicas may watch while nobody looks here.
        from adapter.relay.http_api.shared_counts import SharedCounts
        from adapter.relay.http_api.shared_exchanges import SharedExchanges

        SharedExchanges(observation.recent, store, around.runtime.background, replicas.id)
        shared = SharedCounts(observation.recent, store, replicas.id)
        observation = observation._replace(shared_counts=shared)
    console = ConsoleParts(settings, observation, around)
    if settings.console.auth_hook is not None:
        console.build()
    return console
