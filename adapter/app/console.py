"""The console, built at the first request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from adapter.app.base import Base
from adapter.edge.http.request import Branch, LateBranches
from adapter.relay.background import SingleFlight
from adapter.relay.cleanup import CleanupTask

if TYPE_CHECKING:
    from adapter.relay.http_api.sessions import HttpSessions


class BuiltConsole(NamedTuple):
    """The routes of the console, and the sessions of its callers by server."""

    branches: Sequence[Branch] = ()
    sessions: Mapping[str, HttpSessions] = {}


class LazyConsole:
    """The console. It is seldom opened, so its code, its page and its document are loaded at the first request below
    ``console.path``: at rest they would be memory that nobody uses, and time of every start.
    """

    def __init__(self, base: Base, build: Callable[[], BuiltConsole]) -> None:
        self._base = base
        self._build = build
        self._built: BuiltConsole | None = None if base.settings.console.enabled else BuiltConsole()
        self._building = SingleFlight[None, BuiltConsole]()
        if base.settings.console.enabled:
            base.branches.append(LateBranches(base.settings.console.path, self._load))
            base.tasks.append(CleanupTask("console", self.tidy, alone=False))

    @property
    def branches(self) -> Sequence[Branch]:
        """The routes, none where the console is off."""
        return self.build().branches

    @property
    def sessions(self) -> Mapping[str, HttpSessions]:
        """The sessions of its callers by server."""
        return self.build().sessions

    def build(self) -> BuiltConsole:
        """Build the console unless it is built. A hook that cannot be loaded is noted as a problem of the plans."""
        if self._built is None:
            self._built = self._build()
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
        base, store = self._base, self._base.store
        if not store.shared:
            return False
        from adapter.relay.http_api.caller_session import table_of

        for server in base.settings.servers:
            if await store.overdue(table_of(server.id), base.clock(), limit=1):
                return True
        return False
