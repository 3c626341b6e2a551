"""The sessions that this process has used lately, and the time since when each is known to be right.

What is kept here is a cache of rows. A session is *fresh* while its epoch is the cache's: the hot path compares the two
numbers and makes no round trip. A word of another process makes one session stale, and a gap in the words makes all
stale, by counting the epoch up. A stale session is confirmed when it is used next; one with open streams as soon as
possible, for a GET stream may be silent for ever, so nobody would find out that its session has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from weakref import WeakValueDictionary

from adapter.errors import StoreUnavailable
from adapter.relay.background import nothing
from adapter.relay.sessions.session import TABLE, UNNAMED, Session
from adapter.rules.access.sessions import SessionRecord, SessionState
from adapter.state.port import STALE, RowReads, StoreListener

KEPT = 900.0
"""Seconds for which a session is known that nobody uses."""

MOST_KNOWN = 50_000
"""Sessions that are known at the same time, unless more are in use; each takes about a kilobyte."""

AHEAD = 60.0
"""Seconds by which a session may seem to be used in future; more of them show that the clock went back."""

MOST_MISSED = 10_000
"""Sessions without a row that are remembered until the next round in which unused ones are forgotten."""

SLICE = 2000
"""Sessions that are looked at in one turn of the loop, which takes about a millisecond."""

AT_ONCE = 32
"""Sessions whose rows are read at the same time."""

RESTS = 4
"""Times as long as reading took that nothing is read, where all sessions may have changed: a fifth of the time is spent
on it at most, however often that is.
"""

AGAIN = 1.0
"""Seconds after which a store that failed is read again."""


class SessionCache(RowReads, StoreListener):
    """``open`` are the sessions at hand, by their keys.

    One that was forgotten while some request still works with it is found again as the same object, so that there are
    never two of one session. ``crowded`` is set when there are more than MOST_KNOWN. ``on_renewed`` is called with the
    id of a server that forgot a session, as another process has found out. ``missed`` are those whose rows were found
    gone of late: if the store has lost them, nobody else can end what they stood for.

    ``confirm`` reads the row of a session with open streams again, ends these if the session has ended, and raises
    StoreUnavailable.
    """

    def __init__(self, confirm: Callable[[Session], Awaitable[None]]) -> None:
        super().__init__()
        self.open: dict[str, Session] = {}
        self.crowded = asyncio.Event()
        self.on_renewed: Callable[[str], None] = nothing
        self.missed: dict[str, Session] = {}
        self._forgotten: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._confirm = confirm
        # In order: those of which others have said that they changed come first.
        self._changed: dict[str, Session] = {}
        self._unsure: dict[str, Session] = {}
        self._confirming: asyncio.Task[None] | None = None

    def get(self, key: str) -> Session | None:
        """The session if this process knows it, fresh or not."""
        session = self.open.get(key)
        if session is None and self._forgotten and (session := self._forgotten.pop(key, None)) is not None:
            self.open[key] = session
        return session

    def keep(self, key: str, version: int, record: SessionRecord, epoch: int) -> Session:
        """Know a session by its row, which was right in that epoch."""
        session = self.get(key)
        if session is None:
            upstream, (created, seen, idle) = record.upstream, record.times
            session = self.open[key] = Session(
                key,
                record.server,
                record.principal,
                upstream.id,
                upstream.protocol_version,
                upstream.generation,
                seen,
                created,
                asleep=record.state is SessionState.IDLE,
                version=version,
                epoch=epoch,
                unnamed=key.startswith(UNNAMED),
                idle=idle,
            )
            if len(self.open) > MOST_KNOWN:
                self.crowded.set()
        else:
            session.epoch = epoch
            if session.follow(record, version):
                self.on_renewed(session.server)
        return session

    def drop(self, key: str, only: Session | None = None) -> None:
        """Remove a session that is not open any more, and end its streams; ``only`` if it is still this one."""
        session = self.get(key)
        if session is not None and (only is None or session is only):
            del self.open[key]
            session.end_streams()

    def miss(self, key: str) -> None:
        """Remove a session that has no row any more: it has ended, or the store has lost it."""
        session = self.get(key)
        if session is not None and len(self.missed) < MOST_MISSED:
            self.missed[key] = session
        self.drop(key)

    # --- words of others --------------------------------------------------------------------------------------

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table != TABLE:
            return
        self.changed(key)
        session = self.get(key)
        if session is not None:
            session.epoch = STALE
            if session.listens:
                self._changed[key] = session
                self._begin_to_confirm()

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self.epoch += 1
        listening = {session.key: session for session in self.open.values() if session.listens}
        if listening:
            self._unsure |= listening
            self._begin_to_confirm()

    async def close(self) -> None:
        """Stop reading."""
        if self._confirming is not None:
            self._confirming.cancel()
            await asyncio.gather(self._confirming, return_exceptions=True)

    def _begin_to_confirm(self) -> None:
        if self._confirming is None or self._confirming.done():
            self._confirming = asyncio.get_running_loop().create_task(self._confirm_all())

    async def _confirm_all(self) -> None:
        while self._changed or self._unsure:
            told = bool(self._changed)
            waiting = self._changed or self._unsure
            batch = [waiting.pop(key) for key in list(islice(waiting, AT_ONCE))]
            began = time.monotonic()
            failed = await self._confirm_batch(batch)
            if failed:
                self._unsure |= {session.key: session for session in failed}
                await asyncio.sleep(AGAIN)
            elif not told:
                await asyncio.sleep(RESTS * (time.monotonic() - began))

    async def _confirm_batch(self, sessions: list[Session]) -> list[Session]:
        """Confirm the sessions that are not fresh; those for which that failed."""
        stale = [session for session in sessions if session.epoch != self.epoch and session.listens]
        outcomes = await asyncio.gather(*map(self._confirm, stale), return_exceptions=True)
        failed = []
        for session, outcome in zip(stale, outcomes, strict=True):
            if isinstance(outcome, StoreUnavailable):
                failed.append(session)
            elif isinstance(outcome, BaseException):
                raise outcome
        return failed

    # --- forgetting -------------------------------------------------------------------------------------------

    async def forget_unused(self, now: float) -> None:
        """Forget sessions that were not used for KEPT seconds before ``now`` (Unix seconds), and others while there
        are too many, those of them first that were not used for longer. None that is in use is forgotten.
        """
        self.crowded.clear()
        self.missed.clear()
        kept = KEPT
        await self._forget(now - kept, now + AHEAD)
        while len(self.open) > MOST_KNOWN and kept > 1.0:
            kept /= 2
            await self._forget(now - kept, now + AHEAD)

    async def _forget(self, since: float, until: float) -> None:
        """Forget the sessions that are not in use and were not used between these times."""
        sessions = iter(list(self.open.values()))
        while part := list(islice(sessions, SLICE)):
            for session in _unused(part, since, until):
                if self.open.pop(session.key, None) is not None:
                    self._forgotten[session.key] = session
            await asyncio.sleep(0)


def _unused(sessions: list[Session], since: float, until: float) -> Iterator[Session]:
    return (session for session in sessions if not since < session.last_seen <= until and not session.in_use)
