"""The upstream sessions that nothing leads to any more, because the store has lost the rows of their sessions.

What this process still knows of them it writes down as ended. So the cleanup closes them, as it does with all that have
ended: few at a time, later where their server does not answer, and each once however many replicas knew of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice

from adapter.errors import StoreUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.relay.sessions.confirmation import AGAIN, AT_ONCE, RESTS
from adapter.relay.sessions.session_map import TABLE, Session, Sessions
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
    decode,
    encode,
)
from adapter.rules.access.shared_sessions import membership
from adapter.state.port import ABSENT, Conflict, Row, Store

LOST = "lost-"
"""How the keys of their rows begin; those of clients' sessions are hexadecimal."""


class LostSessions:
    """Finds those that this process has used lately. ``others`` do the same for what only they know, and raise
    StoreUnavailable. ``clock`` gives Unix time in seconds.
    """

    def __init__(
        self,
        sessions: Sessions,
        store: Store,
        others: Sequence[Callable[[], Awaitable[None]]],
        background: BackgroundTasks,
        clock: Callable[[], float],
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._others = others
        self._background = background
        self._clock = clock
        # What is still to be done, by a name: all of it may be done twice.
        self._waiting: dict[str, Callable[[], Awaitable[None]]] = {}
        self._searching = False

    def __repr__(self) -> str:
        return f"<LostSessions: {len(self._waiting)} to be looked for>"

    def store_lost(self) -> None:
        """Look for the rows of all that are known here, in the background."""
        cache = self._sessions.cache
        for session in (*cache.missed.values(), *cache.open.values()):
            # What is a part of a shared session ends with that one.
            if session.upstream_id is not None and membership(session.upstream_id) is None:
                key = _key(session.server, session.upstream_id)
                self._waiting[key] = partial(self._settle, session.key, key, self._ended(session))
        cache.missed.clear()
        self._waiting |= {str(number): other for number, other in enumerate(self._others)}
        if not self._searching:
            self._searching = True
            self._background.run(self._search())

    def _ended(self, session: Session) -> SessionRecord:
        """A record that has the upstream session closed."""
        now = self._clock()
        upstream = UpstreamSession(session.upstream_id, session.protocol_version)
        state, times = SessionState.ENDED, SessionTimes(now, now)
        return SessionRecord(session.server, session.principal, Handshake(b""), upstream, state, times)

    async def _search(self) -> None:
        try:
            while self._waiting:
                await self._next()
        finally:
            self._searching = False

    async def _next(self) -> None:
        batch = dict(islice(self._waiting.items(), AT_ONCE))
        began = time.monotonic()
        try:
            await asyncio.gather(*(settle() for settle in batch.values()))
        except StoreUnavailable:
            await asyncio.sleep(AGAIN)
            return
        for key in batch:
            del self._waiting[key]
        await asyncio.sleep(RESTS * (time.monotonic() - began))

    async def _settle(self, row_key: str, key: str, ended: SessionRecord) -> None:
        """Write down an upstream session to which the row of that key does not lead any more."""
        row = await self._store.get(TABLE, row_key)
        if row is None:
            self._sessions.cache.drop(row_key)
        elif _leads_to(row) == ended.upstream.id:
            return
        with contextlib.suppress(Conflict):
            due = self._sessions.due(ended)
            await self._store.put(TABLE, key, encode(ended), expected=ABSENT, due=due)


def _leads_to(row: Row) -> str | None:
    try:
        return decode(row.value).upstream.id
    except ValueError:
        return None  # another version wrote it, after the loss


def _key(server: str, upstream_session: str) -> str:
    named = f"{len(server)}:{server}{upstream_session}"
    return LOST + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
