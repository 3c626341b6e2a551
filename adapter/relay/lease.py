"""Leases: work that one replica at a time does, and that another takes over when that one is gone.

Clocks of machines differ, so no written time decides. A replica takes a lease over when it has seen the lease's row
unchanged for the lease's seconds by its own clock; a holder counts those seconds from before it wrote, so it stops
believing in its lease before another can have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import orjson

from adapter.errors import StoreUnavailable
from adapter.state.port import ABSENT, Conflict, Row, Store, delete_overdue

TABLE = "leases"

RENEWALS = 3
"""Times that a lease is renewed in its seconds, so that one renewal may fail."""

LEFT_BEHIND = 86400.0
"""Seconds after which the row of a lease that nobody renewed or released may be deleted."""


@dataclass(eq=False)
class Lease:
    """The lease of that name, as one holder sees it. It lasts ``seconds`` after each renewal.

    ``now`` is a clock that never goes back, in seconds; ``clock`` gives Unix time in seconds. What is done under a
    lease must be harmless where two do it: a process may be stopped at any point, and go on when its lease is over.
    """

    store: Store
    name: str
    seconds: float
    now: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    _renewals: int = field(default=0, init=False)
    # The row of another holder as it was first seen, and when that was.
    _seen: Row | None = field(default=None, init=False)
    _seen_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._holder = secrets.token_hex(8)
        self._until = float("-inf")

    def __repr__(self) -> str:
        return f"<Lease {self.name!r}: {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """True while nobody else can have the lease."""
        return self.now() < self._until

    async def take(self) -> bool:
        """Take the lease if it is free, or renew it; False: another replica has it. Raises StoreUnavailable."""
        began = self.now()
        row = await self.store.get(TABLE, self.name)
        if row is not None and not self._is_mine(row) and not self._is_over(row, began):
            self._until = float("-inf")
            return False
        self._renewals += 1
        value = orjson.dumps({"holder": self._holder, "renewals": self._renewals})
        version = ABSENT if row is None else row.version
        due = self.clock() + LEFT_BEHIND
        try:
            await self.store.put(TABLE, self.name, value, expected=version, due=due)
        except Conflict:
            self._until = float("-inf")
            return False
        self._until = began + self.seconds
        return True

    async def release(self) -> None:
        """Let the next one have the lease at once. Without effect where it is another's. Raises StoreUnavailable."""
        self._until = float("-inf")
        row = await self.store.get(TABLE, self.name)
        if row is not None and self._is_mine(row):
            with contextlib.suppress(Conflict):
                await self.store.delete(TABLE, self.name, expected=row.version)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew the lease, which was taken before, until the block ends; then release it.

        Where it is lost meanwhile, the block goes on, and ``held`` is False.
        """
        renewing = asyncio.get_running_loop().create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            # Nobody renews it any more, so it ends by itself where it cannot be released.
            with contextlib.suppress(StoreUnavailable):
                await self.release()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / RENEWALS)
            with contextlib.suppress(StoreUnavailable):
                await self.take()

    def _is_mine(self, row: Row) -> bool:
        """True also for a row of which this holder does not know if it was written."""
        found = orjson.loads(row.value)
        return isinstance(found, dict) and found.get("holder") == self._holder

    def _is_over(self, row: Row, began: float) -> bool:
        """Tell whether another holder's row has not changed for the lease's seconds."""
        # Version and value: a lease that was released and taken again begins at the first version.
        if self._seen is None or (self._seen.version, self._seen.value) != (row.version, row.value):
            self._seen, self._seen_at = row, self.now()
            return False
        return began >= self._seen_at + self.seconds


async def tidy(store: Store, now: float) -> None:
    """Delete the leases that were left behind long before ``now`` (Unix seconds). Raises StoreUnavailable."""
    await delete_overdue(store, TABLE, now)
