"""The adapter session of one caller over HTTP, and the rows by which every process that shares the state finds it.

The store keeps no session id as text: the values are sealed. A row is due when nobody has used its session for a while;
whoever deletes it ends the session.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from adapter.errors import StoreUnavailable
from adapter.relay.http_api.callers import KeptSession, Who
from adapter.relay.http_api.conversation import Conversation
from adapter.relay.http_api.dialogue import SharedListener
from adapter.state.port import ABSENT, Conflict, Row, Store
from adapter.wire.eras import Era

IDLE = 600.0
"""Seconds after which a session that nobody used is closed."""

TOLD = 0.25
"""The part of that time after which the other processes are told again that a session is in use."""

ATTEMPTS = 5
"""Times that a row is written while others change it again and again."""

SWEPT = 100
"""Sessions that the cleanup ends at once."""

SWEEPS = 10
"""Times that it does so in one round, as long as there are more."""


class CallerKey(NamedTuple):
    """The caller whom a session serves: who it is, in which of its tabs, with whom it shares what servers say outside
    of sessions, and whether it can be asked.
    """

    principal: str
    tab: str | None
    party: str
    answers: bool

    @property
    def row(self) -> str:
        """The key of its row."""
        named = json.dumps(self).encode()
        return hashlib.sha256(named).hexdigest()


class SealedStore(Protocol):
    """Rows of a store whose values only adapters with one key can read. All methods raise StoreUnavailable."""

    store: Store

    async def opened(self, table: str, row: Row) -> bytes | None:
        """The value that was sealed in a row; None where it cannot be read."""

    async def put(
        self, table: str, key: str, plain: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """Seal and write; as ``Store.put``. Raises Conflict."""


def table_of(server: str) -> str:
    """The table of the callers of one server (its id)."""
    return f"http:{server}"


class SessionRows:
    """The rows of ``server``, each due when nobody has used its session for ``idle`` seconds. ``clock`` gives Unix time
    in seconds. A process that uses a session says so every ``told`` seconds at least.

    All methods raise StoreUnavailable.
    """

    def __init__(
        self, sealed: SealedStore, server: str, idle: float, told: float, clock: Callable[[], float]
    ) -> None:
        self._sealed = sealed
        self._table = table_of(server)
        self._told = told
        self._ttl = idle + told
        self._clock = clock

    async def find(self, key: CallerKey) -> KeptSession | None:
        """The session of that caller that is open, as far as is known."""
        return (await self._read(key.row))[1]

    async def take(self, key: CallerKey) -> KeptSession | None:
        """As ``find``, for a process that goes on in that session: no other one ends it for now."""
        for _ in range(ATTEMPTS):
            version, session = await self._read(key.row)
            if session is None:
                return None
            # With another version, it is not deleted by who found it overdue, or took it for its own alone.
            with suppress(Conflict):
                await self._write(key, session, version, self._ttl)
                return session
        return None

    async def keep(self, key: CallerKey, session: KeptSession) -> tuple[KeptSession, int]:
        """Have all processes use this session. Returned is the one to use, for another process may have been first, and
        the version of the row that was written here (ABSENT: none was).
        """
        for _ in range(ATTEMPTS):
            version, found = await self._read(key.row)
            if found is not None:
                taken = await self.take(key)
                if taken is not None:
                    return taken, ABSENT
                continue
            with suppress(Conflict):
                return session, await self._write(key, session, version, self._ttl)
        return session, ABSENT

    async def give_up(self, key: CallerKey, session_id: str, version: int) -> bool:
        """Do without a session: True if it is to be ended, for no other process knows it.

        It is this process's alone while its row has the ``version`` that this one wrote. Of others it may be in use, so
        that it ends soon, unless one of them says so.
        """
        now, found = await self._read(key.row)
        if found is None or found.id != session_id:
            return now != ABSENT
        with suppress(Conflict):
            if now == version:
                return await self._sealed.store.delete(self._table, key.row, expected=now)
            await self._write(key, found, now, self._told)
        return False

    async def is_lost(self, key: CallerKey, session_id: str) -> bool:
        """Tell whether the row leads to another session by now, so that only the process that holds this one can end
        it. Without a row it has ended, or the store that knows it is away.
        """
        version, found = await self._read(key.row)
        return version != ABSENT and (found is None or found.id != session_id)

    async def used(self, key: CallerKey) -> None:
        """Put off the end of a session that is in use."""
        await self._sealed.store.touch(self._table, {key.row: self._clock() + self._ttl})

    async def forget(self, key: CallerKey, session_id: str) -> None:
        """Let the next request of that caller open another session, unless that has been done."""
        version, found = await self._read(key.row)
        if found is not None and found.id == session_id:
            with suppress(Conflict):
                await self._sealed.store.delete(self._table, key.row, expected=version)

    async def overdue(self) -> AsyncGenerator[KeptSession, None]:
        """Sessions that nobody has used for too long. No other process is given them, so that each is to be ended."""
        store = self._sealed.store
        for _ in range(SWEEPS):
            rows = await store.overdue(self._table, self._clock(), limit=SWEPT)
            for row in rows:
                session, was_there = await self._opened(row), False
                with suppress(Conflict):
                    was_there = await store.delete(self._table, row.key, expected=row.version)
                if session is not None and was_there:
                    yield session
            if len(rows) < SWEPT:
                return

    async def _write(self, key: CallerKey, session: KeptSession, expected: int, ttl: float) -> int:
        """Write a row that is due in ``ttl`` seconds, and return its version. Raises Conflict."""
        due = self._clock() + ttl
        row = await self._sealed.put(self._table, key.row, _encoded(session), expected=expected, due=due)
        return row.version

    async def _read(self, key: str) -> tuple[int, KeptSession | None]:
        row = await self._sealed.store.get(self._table, key)
        return (ABSENT, None) if row is None else (row.version, await self._opened(row))

    async def _opened(self, row: Row) -> KeptSession | None:
        plain = await self._sealed.opened(self._table, row)
        return None if plain is None else _decoded(plain)


def _encoded(session: KeptSession) -> bytes:
    # Not orjson, which refuses the surrogates that a principal may hold.
    return json.dumps(session._asdict()).encode()


def _decoded(plain: bytes) -> KeptSession | None:
    """The session that was written; None for what another version wrote."""
    match json.loads(plain):
        case {"principal": str(principal), "id": str(session_id), "version": str(version)}:
            return KeptSession(principal, session_id, version)
    return None


# --- one session ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class CallerSession:
    """One caller's session. ``used`` and ``listed`` are moments of the clock; ``busy`` counts who is using it.

    ``rights`` are those with which the tools were listed: tokens of one principal may have different scopes.
    ``kept`` is what ``rows`` tell the other processes of it, and every ``pace`` seconds that it is in use; None for one
    that is this process's alone.
    """

    key: CallerKey
    conversation: Conversation
    clock: Callable[[], float]
    rows: SessionRows | None
    pace: float

    def __post_init__(self) -> None:
        self.listening = SharedListener(self.conversation.listen)
        self.used = self.clock()
        self.busy = 0
        self.tools: Sequence[dict[str, Any]] = ()
        self.places: Mapping[str, int] = {}
        self.listed = float("-inf")
        self.rights: object = None
        self.is_ready = False
        self.kept: KeptSession | None = None
        self._opening = asyncio.Lock()
        self._told = float("-inf")
        self._version = ABSENT

    def __repr__(self) -> str:
        return f"<CallerSession of {self.conversation!r}: {self.busy} busy>"

    @property
    def is_shared(self) -> bool:
        """Tell whether other processes may be using it."""
        return self.kept is not None

    def known(self, name: str) -> dict[str, Any] | None:
        """The tool of that name on the list that was read last."""
        place = self.places.get(name)
        return self.tools[place] if place is not None else None

    async def open(self, who: Who) -> KeptSession | None:
        """Open it, once for all who come at once. Returned is a session that turned out to be one too many.

        Raises AdapterError.
        """
        async with self._opening:
            surplus = None
            if not self.is_ready:
                if self.rows is not None and self.conversation.era is not Era.MODERN:
                    surplus = await self._open_shared(who, self.rows)
                elif not self.conversation.is_open:
                    await self.conversation.open(who)
                self.is_ready = True
            return surplus

    async def _open_shared(self, who: Who, rows: SessionRows) -> KeptSession | None:
        """Go on in the session that another process has opened for this caller, or open the one for all."""
        kept, own = None, None
        if not self.conversation.is_open:
            kept = await rows.take(self.key)
        if kept is None:
            # It is open if the store failed before it was kept.
            if not self.conversation.is_open:
                await self.conversation.open(who)
            own = self.conversation.session
            if own is None:
                return None
            kept, self._version = await rows.keep(self.key, own)
        self._told = self.clock()
        self.conversation.adopt(kept)
        self.kept = kept
        return None if own == kept else own

    async def tell_use(self) -> None:
        """Let the other processes know, from time to time, that it is in use."""
        if self.rows is not None and self.is_shared and self.clock() - self._told >= self.pace:
            self._told = self.clock()
            with suppress(StoreUnavailable):
                await self.rows.used(self.key)

    async def forget(self) -> None:
        """Have no process go on in it, because it is over."""
        if self.rows is not None and self.kept is not None:
            with suppress(StoreUnavailable):
                await self.rows.forget(self.key, self.kept.id)

    async def leave(self) -> None:
        """Leave it to the other processes, and end it where none of them finds it any more."""
        if self.rows is not None and self.kept is not None:
            with suppress(StoreUnavailable):
                if await self.rows.is_lost(self.key, self.kept.id):
                    await self.conversation.close()

    async def give_up(self) -> None:
        """Do without it. It ends at once, unless other processes may be using it."""
        if self.rows is not None and self.kept is not None:
            try:
                if not await self.rows.give_up(self.key, self.kept.id, self._version):
                    return
            except StoreUnavailable:
                return
        await self.conversation.close()
