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
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from adapter.errors import StoreUnavailable
from adapter.relay.background import BackgroundTasks
from adapter.relay.sessions.session_cache import AGAIN, AT_ONCE, RESTS
from adapter.relay.sessions.session_map import TABLE, Session, Sessions
from adapter.rules.access.sessions import (
    SessionRecord,
    SessionState,
    UpstreamSession,
    decode,
    encode,
    membership,
)
from adapter.state.port import ABSENT, STORE_ONLY, Conflict, Row

LOST = "lost-"
"""How the keys of their rows begin; those of clients' sessions are hexadecimal."""


@dataclass(eq=False)
class LostSessions:
    """Finds those that this process has used lately. ``others`` do the same for what only they know, and raise
    StoreUnavailable.
    """

    sessions: Sessions
    others: Sequence[Callable[[], Awaitable[None]]]
    background: BackgroundTasks
    # By server and id.
    _waiting: dict[tuple[str, str], Session] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._asked = self._searching = False

    def __repr__(self) -> str:
        return f"<LostSessions: {'searching' if self._searching else 'done'}, {len(self._waiting)} waiting>"

    def store_lost(self) -> None:
        """Look for the rows of all that are known here, in the background."""
        cache = self.sessions.cache
        # There may be very many, so the rest is done later; but what they stand for now, another row may change.
        self._waiting |= {
            (session.server, session.upstream_id): session
            for session in (*cache.missed.values(), *cache.open.values())
            if session.upstream_id is not None
        }
        cache.missed.clear()
        self._asked = True
        if not self._searching:
            self._searching = True
            self.background.run(self._search())

    async def _search(self) -> None:
        # In the memory that stands in for a store that fails, rows are absent that are not lost.
        STORE_ONLY.set(True)
        try:
            while self._asked:
                self._asked = False
                await self._settle_all()
                for other in self.others:
                    await _until_done(other)
        finally:
            self._searching = False

    async def _settle_all(self) -> None:
        while self._waiting:
            batch = list(islice(self._waiting.items(), AT_ONCE))
            began = time.monotonic()
            await asyncio.gather(
                *(_until_done(partial(self._settle, session, name[1])) for name, session in batch)
            )
            for name, _ in batch:
                del self._waiting[name]
            await asyncio.sleep(RESTS * (time.monotonic() - began))

    async def _settle(self, session: Session, upstream_id: str) -> None:
        """Write an upstream session down to which no row leads any more."""
        row = await self.sessions.store.get(TABLE, session.key)
        if row is None:
            self.sessions.cache.drop(session.key)
        # What is a part of a shared session ends with that one.
        if membership(upstream_id) is not None or (row is not None and _leads_to(row) == upstream_id):
            return
        upstream = UpstreamSession(upstream_id, session.protocol_version)
        ended = SessionRecord.begun(
            session.server, session.principal, b"", upstream, SessionState.ENDED, self.sessions.clock()
        )
        with contextlib.suppress(Conflict):
            key, due = _key(session.server, upstream_id), self.sessions.due(ended)
            await self.sessions.store.put(TABLE, key, encode(ended), expected=ABSENT, due=due)


async def _until_done(work: Callable[[], Awaitable[None]]) -> None:
    """Do it, again and again while the store fails."""
    while True:
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(AGAIN)


def _leads_to(row: Row) -> str | None:
    try:
        return decode(row.value).upstream.id
    except ValueError:
        return None  # another version wrote it, after the loss


def _key(server: str, upstream_session: str) -> str:
    named = f"{len(server)}:{server}{upstream_session}"
    return LOST + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
