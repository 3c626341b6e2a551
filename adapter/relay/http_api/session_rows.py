"""Rows by which every process that shares the state finds the adapter session of a caller over HTTP.

The store keeps no session id as text: the values are sealed. A row is due when nobody has used its session for a while;
whoever deletes it ends the session.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from adapter.state.port import ABSENT, Conflict, Row, Store

ATTEMPTS = 5
"""Times that a row is written while others change it again and again."""

SWEPT = 100
"""Sessions that one round of the cleanup ends."""


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


class KeptSession(NamedTuple):
    """An open session of ``principal`` as any process may go on with it. ``id`` is the adapter's."""

    principal: str
    id: str
    version: str


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
    """The rows of ``server``, each due ``ttl`` seconds after its last use. ``clock`` gives Unix time in seconds.

    All methods raise StoreUnavailable.
    """

    def __init__(self, sealed: SealedStore, server: str, ttl: float, clock: Callable[[], float]) -> None:
        self._sealed = sealed
        self._table = table_of(server)
        self._ttl = ttl
        self._clock = clock

    def __repr__(self) -> str:
        return f"<SessionRows {self._table!r}>"

    async def find(self, key: CallerKey) -> KeptSession | None:
        """The session of that caller that is open, as far as is known."""
        return (await self._read(key.row))[1]

    async def keep(self, key: CallerKey, session: KeptSession) -> KeptSession:
        """Have all processes use this session. Returned is the one to use: another process may have been first."""
        for _ in range(ATTEMPTS):
            version, found = await self._read(key.row)
            if found is not None:
                return found
            try:
                due = self._clock() + self._ttl
                await self._sealed.put(self._table, key.row, _encoded(session), expected=version, due=due)
                break
            except Conflict:
                continue
        return session

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
        for row in await store.overdue(self._table, self._clock(), limit=SWEPT):
            session, was_there = await self._opened(row), False
            with suppress(Conflict):
                was_there = await store.delete(self._table, row.key, expected=row.version)
            if session is not None and was_there:
                yield session

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
