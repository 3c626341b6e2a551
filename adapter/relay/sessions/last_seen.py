"""Last-seen times, which are written behind by the process that saw a session last, and sessions that it may forget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from adapter.errors import StoreUnavailable
from adapter.relay.sessions.session import Session
from adapter.relay.sessions.session_map import TABLE, Sessions

USUAL = 60.0
"""Seconds between two rounds."""

ALONE = 300.0
"""Seconds between two rounds of a process that has its store to itself: its cleanup writes the times too."""

SHORTEST = 0.25
"""Seconds between two rounds where sessions may idle for hardly any time."""

PAGE = 500
"""Last-seen times that are written together."""


class LastSeen:
    """Writes the last-seen times of a process. ``others`` write in the same rounds, and raise StoreUnavailable."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._cache = sessions.cache
        self._store = sessions.store
        self._idle_ttl = sessions.limits.idle_ttl
        self.others: list[Callable[[], Awaitable[None]]] = []

    @property
    def interval(self) -> float:
        """Seconds between two rounds: often enough that no other process takes a session in use here for idle."""
        if not self._store.shared:
            return ALONE
        if self._idle_ttl is None:
            return USUAL
        return min(USUAL, max(SHORTEST, self._idle_ttl / 4))

    async def run(self) -> None:
        """Write and forget at regular times, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await self._cache.crowded.wait()
            # A round that failed is made up for by the next one: nothing is forgotten that is not written.
            with contextlib.suppress(StoreUnavailable):
                await self.write()
                for write in self.others:
                    await write()
            await self._cache.forget_unused(self._sessions.clock())
            # Where too many are in use, nobody gains by looking for others at once.
            await asyncio.sleep(SHORTEST)

    async def write(self) -> None:
        """Write the times of the sessions used since the last call. Raises StoreUnavailable."""
        # A tombstone keeps its time until it is revived.
        used = [
            session
            for session in self._cache.open.values()
            if (session.touched or session.in_flight) and not session.asleep
        ]
        for start in range(0, len(used), PAGE):
            await self._write(used[start : start + PAGE])
            # A store in memory makes nobody wait.
            await asyncio.sleep(0)

    async def _write(self, used: list[Session]) -> None:
        dues = {session.key: self._due(session) for session in used}
        for session in used:
            session.touched = False
        if self._idle_ttl is None:
            return
        try:
            await self._store.touch(TABLE, dues)
        except BaseException:
            for session in used:
                session.touched = True
            raise

    def _due(self, session: Session) -> float:
        ttl = self._idle_ttl or 0.0
        if session.in_flight and self._store.shared:
            # It is in use for as long as its requests take, which no other process can see.
            return self._sessions.clock() + max(ttl, 2 * self.interval)
        return session.last_seen + ttl
