"""``sessions.max_active`` over all replicas: each open session has a slot, and there are only so many.

A slot is a row of one group, which the store bounds. It is taken before a session opens or is revived, and given back
when the session is open no more; at any moment there are at least as many slots as open sessions. Where a process died
between the two, a slot is left over, and the cleanup finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.errors import LimitReached, StoreUnavailable
from adapter.relay.sessions.session import TABLE as SESSIONS
from adapter.rules.access.sessions import SessionState, decode
from adapter.state.port import ABSENT, Conflict, Put, Row, Store, TableFull

TABLE = "session_slots"

GROUP = "open"

OPENING = 180.0
"""Seconds for which a slot stands without a session: longer than a session takes to open, or its slot is renewed."""

CHECKED = 600.0
"""Seconds after which the cleanup looks again if a slot's session is still there."""

BATCH = 100
"""Slots that are looked at together."""

MOST_LEFT_OVER = 10_000
"""Slots without a session that the cleanup remembers; it begins anew with more."""


class SessionSlot(NamedTuple):
    """A slot as this process took or found it; ``taken`` by a clock that never goes back, in seconds."""

    version: int
    taken: float


@dataclass(eq=False, slots=True)
class SessionSlots:
    """At most ``limit`` slots. ``clock`` gives Unix time in seconds,
    ``now`` a time that never goes back.
    """

    store: Store
    limit: int
    clock: Callable[[], float]
    now: Callable[[], float] = time.monotonic
    # Slots without a session as the cleanup first saw them.
    _left_over: dict[str, SessionSlot] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<SessionSlots: at most {self.limit}>"

    async def count(self) -> int:
        """The number of open sessions of all replicas. Raises StoreUnavailable."""
        return await self.store.count(TABLE, group=GROUP)

    async def take(self, key: str) -> SessionSlot:
        """Take the slot of the session of that key, or make the one that is there one's own.

        Raises LimitReached, StoreUnavailable.
        """
        taken = self.now()
        due = self.clock() + OPENING
        while True:
            with contextlib.suppress(Conflict):
                return SessionSlot(await self._create(key, due), taken)
            row = await self.store.get(TABLE, _row_key(key))
            if row is None:
                continue
            # Written anew, so that nobody who saw it before gives it back.
            with contextlib.suppress(Conflict):
                row = await self.store.put(TABLE, row.key, b"", expected=row.version, due=due)
                return SessionSlot(row.version, taken)

    async def _create(self, key: str, due: float) -> int:
        try:
            put = Put(TABLE, _row_key(key), b"", due, expected=ABSENT, most=self.limit)
            return (await self.store.commit([put]))[0].version
        except TableFull:
            raise self._refusal() from None

    async def keep(self, key: str, slot: SessionSlot) -> SessionSlot:
        """The slot for a session that is about to be written, renewed if it took long. Raises as ``take``."""
        return slot if self.now() < slot.taken + OPENING / 2 else await self.take(key)

    @contextlib.asynccontextmanager
    async def while_waking(self, key: str) -> AsyncIterator[None]:
        """Hold a slot while an idle session is revived; it is given back unless the session is open then.

        Raises LimitReached, StoreUnavailable.
        """
        slot = await self.take(key)
        try:
            yield
        finally:
            # What fails here the cleanup finds.
            with contextlib.suppress(StoreUnavailable):
                if await self._is_open(key):
                    await self.add(key)
                else:
                    await self.give_back(key, slot)

    async def of(self, key: str) -> SessionSlot | None:
        """The slot of a session that is about to end; None if it has none. Raises StoreUnavailable."""
        row = await self.store.get(TABLE, _row_key(key))
        return None if row is None else SessionSlot(row.version, self.now())

    async def add(self, key: str) -> None:
        """Count a session that is open without a slot, because it was opened without a limit."""
        with contextlib.suppress(Conflict):
            await self.store.put(TABLE, _row_key(key), b"", expected=ABSENT, due=self.clock() + CHECKED)

    async def give_back(self, key: str, slot: SessionSlot | None) -> None:
        """Give a slot back, unless another has made it its own meanwhile. Raises StoreUnavailable."""
        if slot is not None:
            with contextlib.suppress(Conflict):
                await self.store.delete(TABLE, _row_key(key), expected=slot.version)

    async def tidy(self) -> None:
        """Give back slots whose sessions are gone. Raises StoreUnavailable."""
        while rows := await self.store.overdue(TABLE, self.clock(), limit=BATCH):
            there = await asyncio.gather(*map(self._has_session, rows))
            now = self.clock()
            dues: dict[str, float] = {}
            for row, is_there in zip(rows, there, strict=True):
                if is_there:
                    self._left_over.pop(row.key, None)
                    dues[row.key] = now + CHECKED
                elif await self._is_left_over(row):
                    with contextlib.suppress(Conflict):
                        await self.store.delete(TABLE, row.key, expected=row.version)
                else:
                    dues[row.key] = now + OPENING
            await self.store.touch(TABLE, dues)

    async def _has_session(self, slot: Row) -> bool:
        return await self._is_open(slot.key.removeprefix(f"{GROUP}/"))

    async def _is_open(self, key: str) -> bool:
        row = await self.store.get(SESSIONS, key)
        if row is None:
            return False
        try:
            return decode(row.value).state is SessionState.OPEN
        except ValueError:
            return True  # another version wrote it, so another version may serve it

    async def _is_left_over(self, row: Row) -> bool:
        """Tell whether a slot without a session was seen so before, long enough ago: its session is not just opening.

        Clocks of machines differ, so what was written about its time proves nothing.
        """
        seen = self._left_over.get(row.key)
        if seen is not None and seen.version == row.version:
            over = self.now() >= seen.taken + OPENING
            if over:
                del self._left_over[row.key]
            return over
        if len(self._left_over) >= MOST_LEFT_OVER:
            self._left_over.clear()
        self._left_over[row.key] = SessionSlot(row.version, self.now())
        return False

    def _refusal(self) -> LimitReached:
        return LimitReached(
            f"{self.limit} sessions are open, and sessions.max_active allows no more; end a session or try "
            "again later.",
            data={"limit": self.limit, "setting": "sessions.max_active", "retry_after": 5},
            retry_after=5,
        )


def _row_key(session_key: str) -> str:
    return f"{GROUP}/{session_key}"
