"""The session map and its one writer: which upstream session stands behind a client's session.

The map is data in the state store. What this process has used lately is kept beside it as small objects, so
that a call finds its session by one dict look-up; creation and ending are written before the answer leaves,
last-seen times behind, many at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from adapter.errors import LimitReached, SessionMissing, SessionUnknown
from adapter.relay.sessions.session import UNNAMED, EarlierSessions, Session
from adapter.rules.access.sessions import (
    LONGEST_ID,
    Event,
    SessionLimits,
    SessionRecord,
    SessionState,
    advance,
    decode,
    due,
    encode,
    refusal,
    session_id_from,
    session_key,
    well_formed,
)
from adapter.state.port import ABSENT, Conflict, Row, Store

__all__ = ["TABLE", "Found", "Overdue", "Session", "SessionLimits", "Sessions"]

TABLE = "sessions"

LOADED = 1000
"""Sessions of an earlier process that are known from the start; any other is read when it is used."""

Found = list[tuple[Row, SessionRecord]]
"""Sessions with the rows that they were read from."""


class Overdue(NamedTuple):
    """Sessions whose time has come; ``unreadable`` are the keys of those that this version cannot read."""

    found: Found
    unreadable: list[str]


class Sessions:
    """The session map. ``clock`` gives Unix time in seconds.

    ``on_end`` are called with the key of each session that has ended for good, to let go of what it owned.
    """

    def __init__(self, store: Store, limits: SessionLimits, clock: Callable[[], float]) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._earlier = EarlierSessions()
        self._opening = 0
        self._ending: set[str] = set()
        self._modern_in_flight: dict[str, int] = {}
        self.on_end: list[Callable[[str], Awaitable[None]]] = []

    def __repr__(self) -> str:
        return f"<Sessions: {len(self._open)} open>"

    @property
    def active(self) -> int:
        """Open sessions, those that are being opened and those of an earlier process among them."""
        return len(self._open) + self._earlier.count + self._opening

    def adopt(self, key: str, record: SessionRecord) -> Session:
        """Know a session by its record from now on, unless this process knows it already."""
        session = self._open.get(key)
        if session is None:
            self._earlier.leave(record)
            session = self._keep(key, record)
        return session

    def known(self, key: str) -> Session | None:
        """The open session of that row, if this process knows it; it counts as used now."""
        session = self._open.get(key)
        if session is not None:
            session.last_seen = self._clock()
            session.touched = True
        return session

    def opened(self) -> list[Session]:
        """The open sessions that this process knows."""
        return list(self._open.values())

    async def load(self, keys: Iterable[str] = ()) -> None:
        """Bring the open sessions of ``keys``, and some others of an earlier process, back into the map.

        All are counted. Raises StoreUnavailable.
        """
        await self._earlier.load(self._store, TABLE, self._clock())
        rows = [row for key in keys if (row := await self._store.get(TABLE, key)) is not None]
        for row in [*rows, *await self._store.scan(TABLE, limit=LOADED)]:
            with contextlib.suppress(ValueError):  # one that another version wrote harms no other
                record = self._last_known(row)
                if record.state is SessionState.OPEN:
                    self.adopt(row.key, record)

    # --- opening ----------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        """Count a session that is about to be opened. Raises LimitReached; undo with ``unreserve``."""
        limit = self._limits.max_active
        if limit is not None and self.active >= limit:
            raise LimitReached(
                f"{limit} sessions are open, and sessions.max_active allows no more; end a session or try "
                "again later.",
                data={"limit": limit, "setting": "sessions.max_active", "retry_after": 5},
                retry_after=5,
            )
        self._opening += 1

    def unreserve(self) -> None:
        self._opening -= 1

    async def create(self, record: SessionRecord) -> str:
        """Write a new session down and return the id that the client is to use: 256 random bits."""
        session_id = session_id_from(os.urandom(32))
        key = session_key(session_id)
        try:
            await self._store.put(TABLE, key, encode(record), expected=ABSENT, due=self.due(record))
        except asyncio.CancelledError:
            # It may be written all the same, and no client will ever know its id.
            await self._store.delete(TABLE, key)
            raise
        self._keep(key, record).guarded.everything = False
        return session_id

    # --- finding ----------------------------------------------------------------------------------------------

    async def find(self, session_id: str | None, server: str, principal: str) -> Session:
        """The open session of that id. Raises SessionMissing, and SessionUnknown for every other reason."""
        if session_id is None:
            raise SessionMissing()
        if len(session_id) > LONGEST_ID:
            raise SessionUnknown()
        key = session_key(session_id)
        session = self._open.get(key)
        if session is None:
            if not well_formed(session_id):
                raise SessionUnknown()
            session = await self._read(key, server, principal)
        if session.server != server or session.principal != principal:
            raise SessionUnknown()
        session.last_seen = self._clock()
        session.touched = True
        return session

    async def _read(self, key: str, server: str, principal: str) -> Session:
        """A session this process has not used yet, or one that idled away and is asked for again."""
        if key in self._ending:
            raise SessionUnknown()
        row = await self._store.get(TABLE, key)
        record = self._last_known(row) if row else None
        refused = refusal(record, server=server, principal=principal, now=self._clock(), limits=self._limits)
        if refused is not None:
            raise refused
        assert record is not None, "only a session that exists is served"
        return self.adopt(key, record)

    # --- counting ---------------------------------------------------------------------------------------------

    def enter(self, session: Session | None, principal: str, requests: int) -> None:
        """Count requests in flight until ``leave`` is called for them. Raises LimitReached.

        Modern requests have no session and count by principal.
        """
        limit = self._limits.max_in_flight
        in_flight = session.in_flight if session else self._modern_in_flight.get(principal, 0)
        if limit is not None and in_flight + requests > limit:
            raise LimitReached(
                f"{in_flight} calls are running in this session, and sessions.max_in_flight_per_session allows "
                f"{limit}; wait until one ends.",
                data={"limit": limit, "setting": "sessions.max_in_flight_per_session", "retry_after": 1},
                retry_after=1,
            )
        if session is not None:
            session.in_flight += requests
        else:
            self._modern_in_flight[principal] = in_flight + requests

    def leave(self, session: Session | None, principal: str, requests: int) -> None:
        """Count requests no longer that ``enter`` has counted."""
        if session is not None:
            session.in_flight -= requests
            return
        counts = self._modern_in_flight
        counts[principal] -= requests
        if counts[principal] <= 0:
            del counts[principal]

    # --- changing ---------------------------------------------------------------------------------------------

    async def record(self, session: Session) -> tuple[Row, SessionRecord]:
        """The session as it is written down. Raises SessionUnknown when it has ended meanwhile."""
        row = await self._store.get(TABLE, session.key)
        if row is None or session.key in self._ending:
            self._forget(session)
            raise SessionUnknown()
        record = decode(row.value)
        if record.state not in (SessionState.OPEN, SessionState.IDLE):
            self._forget(session)
            raise SessionUnknown(record.reason)
        return row, record

    async def remap(self, session: Session, row: Row, record: SessionRecord) -> bool:
        """Write the session's new mapping unless another process has since ``row``; False: its mapping is kept."""
        try:
            await self._store.put(
                TABLE, session.key, encode(record), expected=row.version, due=self.due(record)
            )
        except Conflict:
            _, record = await self.record(session)
            self._adopt(session, record)
            return False
        self._adopt(session, record)
        return True

    def _adopt(self, session: Session, record: SessionRecord) -> None:
        session.upstream = record.upstream
        session.asleep = record.state is SessionState.IDLE

    def begin_end(self, session: Session) -> None:
        """Make a session unknown to clients at once. Raises SessionUnknown when another request was first."""
        if session.key in self._ending:
            raise SessionUnknown()
        self._ending.add(session.key)
        self._forget(session)

    async def end(self, session: Session, *, closed: bool) -> None:
        """Write the end down. Unless the session is ``closed`` upstream too, the cleanup closes it there."""
        try:
            if closed:
                await self._store.delete(TABLE, session.key)
            else:
                await self._mark_ended(session.key)
            await self._tell_end(session.key)
        finally:
            self._ending.discard(session.key)

    async def _tell_end(self, key: str) -> None:
        for listener in self.on_end:
            await listener(key)

    async def revoke(self, key: str, reason: str) -> SessionRecord | None:
        """End a session that must not go on: later requests get 404 and the reason, so that clients initialize again.

        What it was, for its upstream session is to be closed; None if it had ended. Raises StoreUnavailable.
        """
        row = await self._store.get(TABLE, key)
        record = decode(row.value) if row else None
        if row is None or record is None or record.state not in (SessionState.OPEN, SessionState.IDLE):
            return None
        revoked = replace(
            record.seen(self._clock()),
            state=advance(record.state, Event.REVOKED_BY_DRIFT),
            upstream=record.upstream._replace(id=None),
            reason=reason,
        )
        try:
            await self._store.put(TABLE, key, encode(revoked), expected=row.version, due=self.due(revoked))
        except Conflict:
            return await self.revoke(key, reason)
        self._drop(key, record)
        await self._tell_end(key)
        return record

    async def _mark_ended(self, key: str) -> None:
        row = await self._store.get(TABLE, key)
        record = decode(row.value) if row else None
        if row is None or record is None or record.state is SessionState.ENDED:
            return
        ended = replace(record.seen(self._clock()), state=advance(record.state, Event.DELETED))
        try:
            await self._store.put(TABLE, key, encode(ended), expected=row.version, due=self._clock())
        except Conflict:
            await self._mark_ended(key)

    async def closed(self, row: Row) -> None:
        """The session's time is over and its upstream session closed: nothing is left to remember.

        Unless it was revived since ``row`` was read.
        """
        with contextlib.suppress(Conflict):
            await self._store.delete(TABLE, row.key, expected=row.version)
            self._drop(row.key)
            await self._tell_end(row.key)

    async def put_off(self, keys: Iterable[str], seconds: float) -> None:
        """Let what is due for these sessions wait, so that they stand in no other one's way."""
        await self._store.touch(TABLE, dict.fromkeys(keys, self._clock() + seconds))

    # --- time -------------------------------------------------------------------------------------------------

    async def write_last_seen(self) -> None:
        """Write the last-seen times of the sessions used since the last call, in one go."""
        ttl = self._limits.idle_ttl
        # A tombstone keeps its time until it is revived.
        used = [session for session in self._open.values() if session.touched and not session.asleep]
        for session in used:
            session.touched = False
        if ttl is not None and used:
            await self._store.touch(TABLE, {session.key: session.last_seen + ttl for session in used})

    async def overdue(self) -> Overdue:
        """Sessions whose time has come: idle ones, tombstones past their time, ended ones not yet closed."""
        overdue = Overdue([], [])
        for row in await self._store.overdue(TABLE, self._clock()):
            try:
                overdue.found.append((row, decode(row.value)))
            except ValueError:  # one that another version wrote harms no other
                overdue.unreadable.append(row.key)
        return overdue

    def is_idle(self, key: str) -> bool:
        """Tell whether nobody has used that session for ``sessions.idle_ttl_seconds``, as far as is known here."""
        session = self._open.get(key)
        if session is None:
            return True
        return not session.in_flight and self._clock() >= session.last_seen + (self._limits.idle_ttl or 0.0)

    async def lay_to_rest(self, row: Row, record: SessionRecord) -> None:
        """Turn an idle session into a tombstone, unless it was used meanwhile."""
        if not self.is_idle(row.key):
            return
        resting = replace(
            self._last_known(row),
            state=advance(record.state, Event.EXPIRED_IDLE),
            upstream=record.upstream._replace(id=None),
        )
        with contextlib.suppress(Conflict):
            await self._store.put(
                TABLE, row.key, encode(resting), expected=row.version, due=self.due(resting)
            )
            self._drop(row.key, record)

    def _last_known(self, row: Row) -> SessionRecord:
        """The record with the time it was last seen, which for an open session only the row's ``due`` tells."""
        record = decode(row.value)
        ttl = self._limits.idle_ttl
        if record.state is not SessionState.OPEN or ttl is None or row.due is None:
            return record
        return record.seen(max(record.times.last_seen, row.due - ttl))

    def due(self, record: SessionRecord) -> float | None:
        """When the cleanup is to look at a session, in Unix seconds; None: never."""
        return due(record, self._limits)

    def _keep(self, key: str, record: SessionRecord) -> Session:
        session = Session(
            key=key,
            server=record.server,
            principal=record.principal,
            upstream=record.upstream,
            last_seen=record.times.last_seen,
            created=record.times.created,
            asleep=record.state is SessionState.IDLE,
        )
        session.unnamed = key.startswith(UNNAMED)
        self._open[key] = session
        return session

    def _forget(self, session: Session) -> None:
        if self._open.get(session.key) is session:
            self._drop(session.key)

    def _drop(self, key: str, record: SessionRecord | None = None) -> None:
        """Remove a session that is not open any more, and end its streams. ``record``: as it was while it was open."""
        session = self._open.pop(key, None)
        if session is not None:
            session.end_streams()
        elif record is not None:
            self._earlier.leave(record)
