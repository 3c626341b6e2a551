"""Sessions whose time is over: idle ones, tombstones past their time, ended ones not yet closed upstream."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from adapter.relay.sessions.session_map import TABLE, Sessions
from adapter.rules.access.sessions import Event, SessionRecord, SessionState, advance, decode, encode
from adapter.state.port import Conflict, Row, Store

SHORTEST = 1.0
"""Seconds by which a session is put off at least, so that a round never looks at the same ones without a pause."""


class DueSession(NamedTuple):
    """A session whose time has come: its ``row`` and the id of its server. ``put_off``: Unix seconds until which it
    stands in no other's way.

    Thousands wait to be tended, so the record is read from the row again when it is this one's turn.
    """

    row: Row
    server: str
    put_off: float


class Overdue(NamedTuple):
    """Sessions whose time has come; ``unreadable`` are the keys of those that this version cannot read."""

    found: list[DueSession]
    unreadable: list[str]


class SessionExpiry:
    """Finds sessions whose time is over, and writes what becomes of them. ``clock`` gives Unix time in seconds."""

    def __init__(self, sessions: Sessions, store: Store, clock: Callable[[], float]) -> None:
        self._sessions = sessions
        self._store = store
        self._clock = clock

    async def overdue(self, put_off: float = 0.0) -> Overdue:
        """The sessions that have been due for longest, which is a page of them; they are put off by so many seconds,
        so that the next page has others. Raises StoreUnavailable.
        """
        overdue = Overdue([], [])
        now = self._clock()
        dues: dict[str, float] = {}
        for row in await self._store.overdue(TABLE, now):
            try:
                record = decode(row.value)
            except ValueError:  # one that another version wrote harms no other
                overdue.unreadable.append(row.key)
                continue
            dues[row.key] = now + self._delay(record, put_off)
            overdue.found.append(DueSession(row, record.server, dues[row.key]))
        if put_off:
            await self._store.touch(TABLE, dues)
        return overdue

    def _delay(self, record: SessionRecord, put_off: float) -> float:
        """The seconds by which a session is put off.

        Half of the time that a session may idle at most: any use that is not written yet moves it further, so its row
        still tells if it was used.
        """
        ttl = self._sessions.limits.idle_ttl
        return min(put_off, max(SHORTEST, ttl / 2)) if record.state is SessionState.OPEN and ttl else put_off

    async def put_off(self, keys: Iterable[str], seconds: float) -> None:
        """Let what is due for these sessions wait, so that they stand in no other one's way."""
        await self._store.touch(TABLE, dict.fromkeys(keys, self._clock() + seconds))

    async def is_idle(self, due: DueSession) -> bool:
        """Tell whether nobody has used that session for ``sessions.idle_ttl_seconds``: here, or elsewhere since its row
        was read. Raises StoreUnavailable.
        """
        if not self._is_idle_here(due.row.key):
            return False
        if not self._store.shared:
            return True
        now = await self._store.get(TABLE, due.row.key)
        return now is not None and now.version == due.row.version and (now.due or 0.0) <= due.put_off

    def _is_idle_here(self, key: str) -> bool:
        session = self._sessions.cache.get(key)
        if session is None:
            return True
        ttl = self._sessions.limits.idle_ttl or 0.0
        return not session.in_flight and self._clock() >= session.last_seen + ttl

    async def lay_to_rest(self, due: DueSession) -> None:
        """Turn an idle session into a tombstone, unless it was used meanwhile. Raises StoreUnavailable."""
        row, slots = due.row, self._sessions.slots
        if not await self.is_idle(due):
            return
        slot = None if slots is None else await slots.of(row.key)
        record = self._sessions.last_known(row)
        resting = replace(
            record,
            state=advance(record.state, Event.EXPIRED_IDLE),
            upstream=record.upstream._replace(id=None),
        )
        with contextlib.suppress(Conflict):
            due_then = self._sessions.due(resting)
            await self._store.put(TABLE, row.key, encode(resting), expected=row.version, due=due_then)
            self._sessions.cache.written(row.key)
            self._sessions.cache.drop(row.key)
            if slots is not None:
                await slots.give_back(row.key, slot)
            if self._sessions.on_event is not None:
                self._sessions.on_event(due.server, "idle")

    async def forget(self, row: Row) -> None:
        """Delete a session whose time is over and whose upstream session is closed, unless it was revived since ``row``
        was read. Raises StoreUnavailable.
        """
        with contextlib.suppress(Conflict):
            if await self._store.delete(TABLE, row.key, expected=row.version):
                self._sessions.cache.written(row.key)
                self._sessions.cache.drop(row.key)
                await self._sessions.tell_end(row.key)
