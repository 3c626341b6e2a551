"""The sum of all files, which ``storage.max_size`` limits.

Where replicas share the store, one row has the sum. Each replica adds to it what changed there, and learns from it what
the others have added, every few seconds and before it refuses a file. So the limit may be passed by what other replicas
take in meanwhile. What a killed replica did not tell is found when all files are counted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from adapter.relay.files.replica_leases import GROUP, ReplicaLeases
from adapter.relay.files.scope_cache import TABLE as FILES
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Ledger
from adapter.state.port import ABSENT, STORE_ONLY, Conflict, Row, Store, every_row

TABLE = "file_totals"

COUNT_EVERY = 60.0
"""Seconds between two counts of all files at least, where anything has changed."""

COUNT_SHARE = 0.01
"""The share of the time that is spent on counts at most, where there are many files."""

TRIES = 20


class StorageTotal:
    """Keeps ``ledger.spare``. Without a limit, or without other replicas, it asks nobody."""

    def __init__(self, store: Store, ledger: Ledger, replica: str, now: Callable[[], float]) -> None:
        self.leases = ReplicaLeases(store, replica, now)
        self._store = store
        self._ledger = ledger
        self._limit = ledger.limits.total_bytes
        self._now = now
        self._lock = asyncio.Lock()
        self._told = 0
        self._counted = ABSENT
        self._count_at = float("-inf")

    def __repr__(self) -> str:
        return f"<StorageTotal: {self._ledger.spare} bytes to spare>"

    async def open(self) -> None:
        """Find out what is left. Raises StoreUnavailable."""
        if self._store.shared:
            await self.leases.renew()
            await self.leases.watch()
            await self.refresh()
        elif self._limit is not None:
            self._ledger.spare = self._limit - await self._sum()

    async def close(self) -> None:
        """Tell the others what changed here, and that this replica ends. Raises StoreUnavailable."""
        if self._store.shared:
            await self.refresh()
            await self.leases.end()

    async def refresh(self) -> None:
        """Add to the sum what changed here, and learn what the others have added. Raises StoreUnavailable."""
        if self._limit is not None and self._store.shared:
            await self._add(0, self._limit)

    async def tend(self) -> None:
        """Renew the lease, tell what changed, and count again where it is time. Raises StoreUnavailable, also while
        others go on in memory: there all other replicas stand still."""
        token = STORE_ONLY.set(True)
        try:
            await self.leases.renew()
            living = await self.leases.watch()
            await self.refresh()
            # One replica is enough for what concerns all.
            if self.leases.is_first(living):
                if await self.leases.forget_dead():
                    # Nobody knows what they did not tell.
                    self._counted, self._count_at = ABSENT, float("-inf")
                if self._limit is not None:
                    await self._count_again(self._limit)
        finally:
            STORE_ONLY.reset(token)

    async def _count_again(self, limit: int) -> None:
        row = await self._store.get(TABLE, GROUP)
        if row is None or row.version == self._counted or self._now() < self._count_at:
            return
        began = self._now()
        # As a difference, since others go on adding to the sum while files are counted.
        version = await self._add(await self._sum() - _bytes(row), limit)
        if version == ABSENT:
            return
        # What others told meanwhile may be in it twice: then it is counted again, even if nothing changes any more.
        self._counted = version if version - row.version in (0, 1) else ABSENT
        self._count_at = began + max(COUNT_EVERY, (self._now() - began) / COUNT_SHARE)

    async def _add(self, correction: int, limit: int) -> int:
        """Add a correction, and what changed here, to the sum; returns the version of its row. Where others are first
        all the time, the sum waits for the next time."""
        async with self._lock:
            for _ in range(TRIES):
                row = await self._store.get(TABLE, GROUP)
                known = await self._sum() if row is None else _bytes(row)
                charged = self._ledger.charged
                more = 0 if row is None else correction + charged - self._told
                version = ABSENT if row is None else row.version
                if more or row is None:
                    # Earlier versions, which may run beside this one, read a second number.
                    value = orjson.dumps([max(0, known + more), 0])
                    try:
                        version = (await self._store.put(TABLE, GROUP, value, expected=version)).version
                    except Conflict:
                        continue
                self._told = charged
                self._ledger.spare = limit - known - more - (self._ledger.charged - charged)
                return version
        return ABSENT

    async def _sum(self) -> int:
        """The bytes of all files that have a row."""
        found = 0
        async for row in every_row(self._store, FILES):
            found += size_in(row.value)
        return found


def _bytes(row: Row) -> int:
    total: int = orjson.loads(row.value)[0]
    return total
