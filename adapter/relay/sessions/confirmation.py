"""Confirmation of sessions with open streams as soon as other processes may have changed them.

Other sessions are confirmed when they are used next. A GET stream may be silent for ever, so nobody would find out that
its session has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

from adapter.errors import StoreUnavailable
from adapter.relay.sessions.session import Session
from adapter.relay.sessions.session_cache import SessionCache
from adapter.state.port import StoreListener

AT_ONCE = 32
"""Sessions whose rows are read at the same time."""

RESTS = 4
"""Times as long as reading took that nothing is read, where all sessions may have changed: a fifth of the time is spent
on it at most, however often that is.
"""

AGAIN = 1.0
"""Seconds after which a store that failed is read again."""


class StreamConfirmation(StoreListener):
    """Listens to the store for changed sessions. ``table`` is the one of their rows.

    ``confirm`` reads one of them again, ends its streams if it has ended, and raises StoreUnavailable.
    """

    def __init__(
        self, cache: SessionCache, table: str, confirm: Callable[[Session], Awaitable[None]]
    ) -> None:
        self._cache = cache
        self._table = table
        self._confirm = confirm
        # In order: those of which others have said that they changed come first.
        self._changed: dict[str, Session] = {}
        self._unsure: dict[str, Session] = {}
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StreamConfirmation: {len(self._changed) + len(self._unsure)} sessions waiting>"

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table == self._table and (session := self._cache.changed(key)) is not None and session.listens:
            self._changed[key] = session
            self._start()

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self._cache.epoch += 1
        sessions = self._cache.listening()
        if sessions:
            self._unsure |= {session.key: session for session in sessions}
            self._start()

    async def close(self) -> None:
        """Stop reading."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _start(self) -> None:
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._changed or self._unsure:
            told = bool(self._changed)
            waiting = self._changed or self._unsure
            batch = [waiting.pop(key) for key in list(islice(waiting, AT_ONCE))]
            began = time.monotonic()
            failed = await self._read(batch)
            if failed:
                self._unsure |= {session.key: session for session in failed}
                await asyncio.sleep(AGAIN)
            elif not told:
                await asyncio.sleep(RESTS * (time.monotonic() - began))

    async def _read(self, sessions: Iterable[Session]) -> list[Session]:
        """Confirm the sessions that are not fresh; those for which that failed."""
        stale = [session for session in sessions if session.epoch != self._cache.epoch and session.listens]
        outcomes = await asyncio.gather(*map(self._confirm, stale), return_exceptions=True)
        failed = []
        for session, outcome in zip(stale, outcomes, strict=True):
            if isinstance(outcome, StoreUnavailable):
                failed.append(session)
            elif isinstance(outcome, BaseException):
                raise outcome
        return failed
