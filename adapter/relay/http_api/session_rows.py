"""The rows by which processes that share the state find the sessions of callers over HTTP.

A caller meets another process with each request, so a row for each caller leads to its session. The store keeps no
session id as text: the values are sealed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from adapter.errors import AdapterError, SessionUnknown
from adapter.relay.http_api.callers import KeptSession
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions
from adapter.rules.access.sessions import Event, advance, decode, session_key
from adapter.state.port import ABSENT, PAGE, Conflict, Row, Store

SOON = 0.25
"""The part of the idle time after which a session is closed that other processes may be using, where it makes room in
one.
"""


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
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()


class SealedStore(Protocol):
    """Rows of a store whose values only adapters with one key can read. All methods raise StoreUnavailable."""

    store: Store

    async def opened(self, table: str, row: Row) -> bytes | None:
        """The value that was sealed in a row; None where it cannot be read."""

    async def put(
        self, table: str, key: str, plain: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """Seal and write; as ``Store.put``. Raises Conflict."""


@dataclass(eq=False, repr=False, slots=True)
class SessionRows:
    """The rows of the callers of ``server``, in ``sealed``, and the records of their sessions, which end when nobody
    has used them for ``idle`` seconds. All methods raise StoreUnavailable.
    """

    sealed: SealedStore
    sessions: Sessions
    server: Server
    idle: float

    @property
    def _table(self) -> str:
        return f"http:{self.server.id}"

    def _due(self) -> float:
        """The time until which a row is kept: longer than the session to which it leads."""
        return self.sessions.clock() + 2 * self.idle

    async def find(self, key: CallerKey) -> tuple[int, KeptSession | None]:
        """The version of a caller's row, and the session to which it leads if that is open: whoever was about to end it
        leaves it.
        """
        row = await self.sealed.store.get(self._table, key.row)
        if row is None:
            return ABSENT, None
        kept = await self._read(row)
        try:
            if kept is not None:
                await self._renew(kept, self.idle)
        except SessionUnknown:
            kept = None
        return row.version, kept

    async def add(self, key: CallerKey, kept: KeptSession, version: int) -> bool:
        """Have a caller's row, which is of that version, lead to a session. False where another process was first."""
        # Not orjson, which refuses the surrogates that a principal may hold.
        plain = json.dumps(kept._asdict()).encode()
        with suppress(Conflict):
            await self.sealed.put(self._table, key.row, plain, expected=version, due=self._due())
            return True
        return False

    async def keep(self, kept: KeptSession) -> None:
        """Have a session idle as long as others again, if that can be written now."""
        with suppress(AdapterError):
            await self._renew(kept, self.idle)

    async def give_up(self, kept: KeptSession) -> bool:
        """Write down that a session has ended, if nobody has written it since it was opened, else that it does soon;
        True if it is to be closed. Raises SessionUnknown.

        Whoever begins to use it writes the same row: one of both is first, and the other finds that.
        """
        session = await self.sessions.find(kept.id, self.server.id, kept.principal)
        row, record = await self.sessions.record(session)
        is_alone = row.version == 1
        record = record.seen(self.sessions.clock(), self.idle * SOON)
        if is_alone:
            record = replace(record, state=advance(record.state, Event.DELETED))
        return await self.sessions.remap(session, row, record) and is_alone

    async def tidy(self, used: Iterable[CallerKey]) -> None:
        """Keep the rows of callers whose sessions are used here, and delete those that no process has kept. Sessions
        that earlier builds opened have no limit of their own, as these rows were what ended them: they are given one.
        """
        store, table = self.sealed.store, self._table
        await store.touch(table, {key.row: self._due() for key in used})
        while True:
            page = await store.overdue(table, self.sessions.clock(), limit=PAGE)
            for row in page:
                kept = await self._read(row)
                found = None if kept is None else (await self.sessions.row(session_key(kept.id)))[0]
                with suppress(ValueError, SessionUnknown):
                    if kept is not None and found is not None and decode(found.value).times.idle is None:
                        await self._renew(kept, self.idle * SOON)
                with suppress(Conflict):
                    await store.delete(table, row.key, expected=row.version)
            if len(page) < PAGE:
                return

    async def _read(self, row: Row) -> KeptSession | None:
        """The session to which a row leads; None for what another version wrote, or one with another key."""
        plain = await self.sealed.opened(self._table, row)
        match None if plain is None else json.loads(plain):
            case {"principal": str(principal), "id": str(session_id), "version": str(version)}:
                return KeptSession(principal, session_id, version)
        return None

    async def _renew(self, kept: KeptSession, idle: float) -> None:
        """Write down that a session is used, and idle after so many seconds. Raises SessionUnknown."""
        session = await self.sessions.find(kept.id, self.server.id, kept.principal)
        row, record = await self.sessions.record(session)
        await self.sessions.remap(session, row, record.seen(self.sessions.clock(), idle))
