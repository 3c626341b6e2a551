"""The session map and its one writer: which upstream session stands behind a client's session.

The map is data in the state store, and nothing of it is read before it is used. What this process has used lately is
kept beside it as small objects, so that a call finds its session by one dict look-up; creation and ending are written
before the answer leaves, last-seen times behind, many at once.

Facts about clients by their own words: of a modern request in itself, else in what opened its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from adapter.errors import AdapterError, SessionMissing, SessionUnknown, StoreUnavailable
from adapter.relay.sessions.session import ANY_GUARDED, NONE_GUARDED, TABLE, RequestsInFlight, Session
from adapter.relay.sessions.session_cache import SessionCache
from adapter.relay.sessions.session_slots import SessionSlot, SessionSlots
from adapter.relay.stages import Call
from adapter.rules.access.sessions import (
    LONGEST_ID,
    TRANSITIONS,
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
from adapter.rules.clients.hosts import IN_INITIALIZE, IN_REQUEST, client_info
from adapter.rules.last_used import LastUsed
from adapter.state.port import ABSENT, STALE, Conflict, Row, Store

__all__ = ["TABLE", "Session", "SessionLimits", "SessionPlace", "Sessions"]

READS = 5
"""Times that a row is read while others change it again and again."""

LIVING = (SessionState.OPEN, SessionState.IDLE)
"""The states of sessions that a client may use."""


@dataclass(slots=True)
class SessionPlace:
    """The place of a session that is about to be opened: the id that its client will use, and its slot.

    ``used``: the session was created.
    """

    session_id: str
    slot: SessionSlot
    used: bool = False


_NO_PLACE = contextlib.nullcontext()


class Sessions:
    """The session map. ``clock`` gives Unix time in seconds.

    ``on_end`` are called with the key of each session that has ended here for good, to let go of what it owned.
    ``slots`` is None where ``max_active`` sets no limit.
    """

    def __init__(self, store: Store, limits: SessionLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.in_flight = RequestsInFlight(limits.max_in_flight)
        self.cache = SessionCache(self._confirm)
        self.slots: SessionSlots | None = None
        if limits.max_active is not None:
            self.slots = SessionSlots(store, limits.max_active, clock)
        self.on_end: list[Callable[[str], Awaitable[None]]] = []
        self.on_event: Callable[[str, str], None] | None = None  # server, event; None where nobody counts
        self.store = store
        self.clock = clock
        self._ending: set[str] = set()
        store.listeners.append(self.cache)

    @property
    def active(self) -> int:
        """The open sessions that this process has used lately."""
        return len(self.cache.open)

    async def count(self) -> int:
        """Count the open sessions of all replicas where their number is limited, else those used here lately.

        Raises StoreUnavailable.
        """
        return self.active if self.slots is None else await self.slots.count()

    def opened(self) -> list[Session]:
        """The open sessions that this process has used lately."""
        return list(self.cache.open.values())

    async def close(self) -> None:
        """Stop listening to others."""
        await self.cache.close()

    # --- opening ----------------------------------------------------------------------------------------------

    def place(
        self, session_id: str | None = None
    ) -> contextlib.AbstractAsyncContextManager[SessionPlace | None]:
        """Hold the place of a session that is about to be opened, under that id if there is one; None where there is no
        limit. Unless it was created the place is given back; where the store fails, the cleanup finds the slot.

        Raises LimitReached, StoreUnavailable.
        """
        return _NO_PLACE if self.slots is None else self._place(self.slots, session_id)

    @contextlib.asynccontextmanager
    async def _place(self, slots: SessionSlots, session_id: str | None) -> AsyncIterator[SessionPlace]:
        session_id = session_id or session_id_from(os.urandom(32))
        key = session_key(session_id)
        place = SessionPlace(session_id, await slots.take(key))
        try:
            yield place
        finally:
            if not place.used:
                with contextlib.suppress(StoreUnavailable):
                    await slots.give_back(key, place.slot)

    async def create(
        self, record: SessionRecord, place: SessionPlace | None = None, session_id: str | None = None
    ) -> str:
        """Write a new session down and return the id that the client is to use: 256 random bits, if none is given.

        Raises StoreUnavailable, LimitReached for a place that it took too long to use, and Conflict where the session
        of a given id is there.
        """
        if place is not None:
            session_id = place.session_id
        elif session_id is None:
            session_id = session_id_from(os.urandom(32))
        key = session_key(session_id)
        if place is not None and self.slots is not None:
            place.slot = await self.slots.keep(key, place.slot)
        try:
            row = await self.store.put(TABLE, key, encode(record), expected=ABSENT, due=self.due(record))
        except (asyncio.CancelledError, StoreUnavailable):
            # It may be written all the same, and no client will ever know its id.
            with contextlib.suppress(StoreUnavailable):
                await self.store.delete(TABLE, key)
            raise
        session = self.cache.keep(key, row.version, record, self.cache.epoch)
        # Nothing was called in it yet; of calls that other processes take nothing is known here.
        session.guarded = ANY_GUARDED if self.store.shared else NONE_GUARDED
        if place is not None:
            place.used = True
        return session_id

    def slot_for(self, key: str, record: SessionRecord) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold the slot that a session needs while it is opened anew; one that is open has it already."""
        if self.slots is None or record.state is SessionState.OPEN:
            return contextlib.nullcontext()
        return self.slots.while_waking(key)

    # --- finding ----------------------------------------------------------------------------------------------

    async def find(self, session_id: str | None, server: str, principal: str) -> Session:
        """The open session of that id. Raises SessionMissing, StoreUnavailable, and SessionUnknown for every other
        reason.
        """
        if session_id is None:
            raise SessionMissing()
        if len(session_id) > LONGEST_ID:
            raise SessionUnknown()
        key = session_key(session_id)
        session = self.cache.open.get(key)
        if session is None or session.epoch != self.cache.epoch:
            if not well_formed(session_id):
                raise SessionUnknown()
            session = await self._read(key, server, principal)
        if session.server != server or session.principal != principal:
            raise SessionUnknown()
        session.last_seen = self.clock()
        session.touched = True
        return session

    def known(self, key: str) -> Session | None:
        """The open session of that row, if this process knows it for sure; it counts as used now."""
        session = self.cache.open.get(key)
        if session is None or session.epoch != self.cache.epoch:
            return None
        session.last_seen = self.clock()
        session.touched = True
        return session

    async def _read(self, key: str, server: str, principal: str) -> Session:
        """A session that is not at hand, or that others may have changed, or one that idled away."""
        row, epoch = await self.row(key)
        if key in self._ending:
            raise SessionUnknown()
        session = self.cache.get(key)
        if session is not None and row is not None and row.version == session.version:
            session.epoch = epoch
            return session
        record = self._readable(row)
        if session is not None and record is not None:
            record = record.seen(max(record.times.last_seen, session.last_seen))
        refused = refusal(record, server=server, principal=principal, now=self.clock(), limits=self.limits)
        if refused is not None:
            if row is None:
                self.cache.miss(key)
            elif record is None or record.state not in LIVING:
                self.cache.drop(key)
            raise refused
        assert record is not None and row is not None, "only a session that exists is served"
        return await self.adopt(row, record, epoch)

    def _readable(self, row: Row | None) -> SessionRecord | None:
        """The record of a row; None where there is none, or one that another version of the adapter wrote."""
        try:
            return None if row is None else self.last_known(row)
        except ValueError:
            return None

    async def row(self, key: str) -> tuple[Row | None, int]:
        """A session's row, and the epoch in which that was right. Raises StoreUnavailable."""
        for _ in range(READS):
            with self.cache.reading(key) as read:
                row = await self.store.get(TABLE, key)
            if read.epoch != STALE:
                break
        return row, read.epoch

    async def write_new(self, key: str, record: SessionRecord, version: int) -> tuple[Row, int]:
        """Write a session in place of a row of that version; the row, and the epoch in which that was right.

        Raises Conflict, StoreUnavailable.
        """
        # Others may hear of it, and write theirs, before the answer comes.
        with self.cache.reading(key) as read:
            row = await self.store.put(TABLE, key, encode(record), expected=version, due=self.due(record))
        return row, read.epoch

    async def adopt(self, row: Row, record: SessionRecord, epoch: int) -> Session:
        """Know a session by its row, which was right in that epoch. Raises StoreUnavailable."""
        is_new = self.cache.get(row.key) is None
        session = self.cache.keep(row.key, row.version, record, epoch)
        if is_new and self.slots is not None and record.state is SessionState.OPEN:
            await self.slots.add(row.key)
        return session

    async def _confirm(self, session: Session) -> None:
        """Read a session's row again; the streams of one that has ended end. Raises StoreUnavailable."""
        row, epoch = await self.row(session.key)
        if row is not None and row.version == session.version:
            session.epoch = epoch
            return
        record = None
        if row is not None:
            try:
                record = decode(row.value)
            except ValueError:  # another version wrote it; it stays stale, and its next use tells
                return
        if row is None:
            self.cache.miss(session.key)
        elif record is None or record.state not in LIVING:
            self.cache.drop(session.key, session)
        else:
            self.cache.keep(row.key, row.version, record, epoch)

    # --- changing ---------------------------------------------------------------------------------------------

    async def record(self, session: Session) -> tuple[Row, SessionRecord]:
        """The session as it is written down. Raises SessionUnknown when it has ended meanwhile."""
        row = await self.store.get(TABLE, session.key)
        if row is None or session.key in self._ending:
            self.cache.miss(session.key)
            raise SessionUnknown()
        record = decode(row.value)
        if record.state not in LIVING:
            self.cache.drop(session.key, session)
            raise SessionUnknown(record.reason)
        return row, record

    async def remap(self, session: Session, row: Row, record: SessionRecord) -> bool:
        """Write the session's new mapping unless another process has since ``row``; False: its mapping is kept."""
        try:
            row = await self.store.put(
                TABLE, session.key, encode(record), expected=row.version, due=self.due(record)
            )
        except Conflict:
            row, record = await self.record(session)
            session.follow(record, row.version)
            return False
        self.cache.changed(session.key)
        session.follow(record, row.version)
        return True

    # --- ending -----------------------------------------------------------------------------------------------

    def begin_end(self, session: Session) -> None:
        """Make a session unknown to clients at once. Raises SessionUnknown when another request was first."""
        if session.key in self._ending:
            raise SessionUnknown()
        self._ending.add(session.key)
        self.cache.drop(session.key, session)

    async def end(self, session: Session, *, closed: bool) -> None:
        """Write the end down. Unless the session is ``closed`` upstream too, the cleanup closes it there."""
        try:
            slot = None if self.slots is None else await self.slots.of(session.key)
            if not closed or not await self._delete(session):
                await self._advance(session.key, Event.DELETED)
            if self.slots is not None:
                await self.slots.give_back(session.key, slot)
            await self.tell_end(session.key)
        finally:
            self._ending.discard(session.key)

    async def _delete(self, session: Session) -> bool:
        """Delete a session that is closed upstream; False: another process has mapped it anew meanwhile."""
        version = session.version
        for _ in range(READS):
            try:
                await self.store.delete(TABLE, session.key, expected=version)
                return True
            except Conflict:
                row = await self.store.get(TABLE, session.key)
                if row is None:
                    return True
                if decode(row.value).upstream.id != session.upstream_id:
                    return False
                version = row.version
        return False

    async def tell_end(self, key: str) -> None:
        """Let go of what a session owned that has ended for good."""
        for listener in self.on_end:
            await listener(key)

    async def revoke(self, key: str, reason: str) -> SessionRecord | None:
        """End a session that must not go on: later requests get 404 and the reason, so that clients initialize again.

        What it was, for its upstream session is to be closed; None if it had ended. Raises StoreUnavailable.
        """
        slot = None if self.slots is None else await self.slots.of(key)
        record = await self._advance(key, Event.REVOKED_BY_DRIFT, reason)
        self.cache.drop(key)
        if record is None:
            return None
        if self.slots is not None:
            await self.slots.give_back(key, slot)
        await self.tell_end(key)
        return record

    async def _advance(self, key: str, event: Event, reason: str | None = None) -> SessionRecord | None:
        """Write down that a session has been revoked or deleted; what it was before, None where it had ended."""
        while (row := await self.store.get(TABLE, key)) is not None:
            record = decode(row.value)
            if (record.state, event) not in TRANSITIONS:
                break
            over = replace(record.seen(self.clock()), state=advance(record.state, event), reason=reason)
            if event is Event.REVOKED_BY_DRIFT:
                over = replace(over, upstream=over.upstream._replace(id=None))
            with contextlib.suppress(Conflict):
                await self.store.put(TABLE, key, encode(over), expected=row.version, due=self.due(over))
                self.cache.changed(key)
                return record
        return None

    # --- time -------------------------------------------------------------------------------------------------

    def last_known(self, row: Row) -> SessionRecord:
        """The record with the time it was last seen, which for an open session only the row's ``due`` tells."""
        record = decode(row.value)
        ttl = self.limits.idle_of(record.times.idle)
        if record.state is not SessionState.OPEN or ttl is None or row.due is None:
            return record
        return record.seen(max(record.times.last_seen, row.due - ttl))

    def due(self, record: SessionRecord) -> float | None:
        """When the cleanup is to look at a session, in Unix seconds; None: never."""
        return due(record, self.limits)


F = TypeVar("F")

KEPT = 4096
"""Sessions of which a fact is remembered."""


@dataclass(eq=False, repr=False)
class ClientFact(Generic[F]):
    """One fact about the client of a call, as ``in_request`` or ``in_initialize`` reads it out of a message. It is
    ``unknown`` where the session cannot be read.
    """

    sessions: Sessions
    in_request: Callable[[bytes], F]
    in_initialize: Callable[[bytes], F]
    unknown: F
    _known: LastUsed[str, F] = field(default_factory=lambda: LastUsed(KEPT), init=False)

    async def of(self, call: Call) -> F:
        """The fact about this call's client."""
        if call.modern:
            return self.in_request(call.envelope.body)
        key = call.origin.session
        if key is None:
            return self.unknown
        fact = self._known.get(key)
        if fact is None:
            session = self.sessions.known(key)
            if session is None:
                return self.unknown
            try:
                _, record = await self.sessions.record(session)
            except AdapterError:
                return self.unknown
            fact = self.in_initialize(record.handshake.initialize)
            self._known.put(key, fact)
        return fact


def client_infos(sessions: Sessions) -> ClientFact[Mapping[str, str]]:
    """The names and versions by which clients introduced themselves."""
    return ClientFact(
        sessions, partial(client_info, place=IN_REQUEST), partial(client_info, place=IN_INITIALIZE), {}
    )
