"""The console, built at the first request for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from adapter.app.base import Base
from adapter.edge.http.request import Branch, LateBranches
from adapter.relay.background import SingleFlight, nothing
from adapter.relay.cleanup import CleanupTask

if TYPE_CHECKING:
    from adapter.relay.http_api.sessions import HttpSessions


class BuiltConsole(NamedTuple):
    """The routes of the console, and what ends the streams of its callers."""

    branches: Sequence[Branch] = ()
    end_streams: Callable[[], None] = nothing


class LazyConsole:
    """The console. It is seldom opened, so its code, its page and its document are loaded at the first request below
    ``console.path``: at rest they would be memory that nobody uses, and time of every start.
    """

    def __init__(self, base: Base, build: Callable[[], BuiltConsole]) -> None:
        self._base = base
        self._build = build
        self._built: BuiltConsole | None = None if base.settings.console.enabled else BuiltConsole()
        self._building = SingleFlight[int, BuiltConsole]()
        self._turn = 0
        self.known: dict[str, HttpSessions] = {}
        """The sessions of callers by server, also of a console before this one."""
        if base.settings.console.enabled:
            base.branches.append(LateBranches(base.settings.console.path, self._load))
            base.tasks.append(CleanupTask("console", self.tidy, alone=False))
            base.by_server.append(self.known)
            base.on_change.append(self._rebuild)

    @property
    def branches(self) -> Sequence[Branch]:
        """The routes, none where the console is off."""
        return self.build().branches

    def build(self) -> BuiltConsole:
        """Build the console unless it is built. A hook that cannot be loaded is noted as a problem of the plans."""
        if self._built is None:
            self._built = self._build()
        return self._built

    def _rebuild(self) -> None:
        """Build the console anew at the next request, by the settings of now."""
        self.end_streams()
        self._built = None
        self._turn += 1

    def end_streams(self) -> None:
        """End the streams of its callers."""
        if self._built is not None:
            self._built.end_streams()

    async def _load(self) -> Sequence[Branch]:
        # In a thread, since the loop would stand still for the imports. It goes on when who asked first has left: the
        # next request must not build a second console, as only one is tidied and closed.
        while self._built is None:
            turn = self._turn
            built = await self._building.get(turn, partial(asyncio.to_thread, self._build))
            if turn == self._turn and self._built is None:
                self._built = built
        return self._built.branches

    async def tidy(self) -> None:
        """Forget sessions that are idle for too long. Raises StoreUnavailable."""
        await asyncio.gather(*(sessions.tidy() for sessions in self.known.values()))

    async def close(self, within: float) -> None:
        """End the sessions of all callers, upstream as far as that takes no longer than ``within`` seconds."""
        await asyncio.gather(*(sessions.close(within) for sessions in self.known.values()))
