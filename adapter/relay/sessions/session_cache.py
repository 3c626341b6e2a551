"""The sessions that this process has used lately, and the time since when each is known to be right.

What is kept here is a cache of rows. A session is *fresh* while its epoch is the cache's: the hot path compares the two
numbers and makes no round trip. A word of another process makes one session stale, and a gap in the words makes all
stale, by counting the epoch up. A stale session is confirmed when it is used next; one with open streams as soon as
possible, for a GET stream may be silent for ever, so nobody would find out that its session has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from weakref import WeakValueDictionary

from adapter.relay.background import BackgroundTasks, RowLooks, nothing
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
        self._background = BackgroundTasks()
        self._looks = RowLooks(self._confirm_stale, self._background)

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
                self._looks.add({key: session}, told=True)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self.epoch += 1
        self._looks.add({session.key: session for session in self.open.values() if session.listens})

    async def close(self) -> None:
        """Stop reading."""
        await self._background.close()

    async def _confirm_stale(self, _: str, session: Session) -> None:
        if session.epoch != self.epoch and session.listens:
            await self._confirm(session)

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
