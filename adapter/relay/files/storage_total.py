"""The sum of all files, which ``storage.max_size`` limits, and the leases of the replicas that share them.

Where replicas share the store, one row has the sum. Each replica adds to it what changed there, and learns from it what
the others have added, every few seconds and before it refuses a file. So the limit may be passed by what other replicas
take in meanwhile. What a killed replica did not tell is found when all files are counted again.

Who lives is judged without the clock of any other machine. Each replica writes its row again and again; another one
takes it for ended when the row is gone, or has not changed for the length of a lease by that other one's own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import orjson

from adapter.relay.files.scope_cache import TABLE as FILES
from adapter.rules.access.replicas import Sightings
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Ledger
from adapter.state.port import ABSENT, STORE_ONLY, Conflict, Row, Store, every_row

TABLE = "file_totals"
LEASES = "file_replicas"
GROUP = "storage"

RENEWAL = 5.0
"""Seconds between two writes of a replica's row."""

LEASE = 20.0
"""Seconds without a write after which a replica counts as ended."""

LOOKS = 3
"""Looks at a row without a change after which its replica may count as ended."""

MOST_ENDED = 1000
"""Ended replicas that are remembered. One that was forgotten is looked for again where a file names it."""

COUNT_EVERY = 60.0
"""Seconds between two counts of all files at least, where anything has changed."""

COUNT_SHARE = 0.01
"""The share of the time that is spent on counts at most, where there are many files."""

TRIES = 20


class ReplicaLeases:
    """The lease of this replica, called ``replica``, and those of the others. ``now`` never goes back, in seconds."""

    def __init__(self, store: Store, replica: str, now: Callable[[], float]) -> None:
        self._store = store
        self._key = f"{GROUP}/{replica}"
        self._now = now
        self._renewed = float("-inf")
        self._sightings = Sightings[Row](LOOKS, LEASE)
        self._asked: set[str] = set()
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return f"<ReplicaLeases: {self._key}, {len(self._sightings.seen)} replicas seen>"

    # --- one's own --------------------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """See that no other replica has taken this one for ended, before a change of files. Raises StoreUnavailable."""
        if not self.is_current:
            await self.renew()

    @property
    def is_current(self) -> bool:
        """True while no other replica can have taken this one for ended."""
        return self._now() - self._renewed < LEASE / 2

    async def renew(self) -> None:
        """Write the row again. Raises StoreUnavailable."""
        began = self._now()
        await self._store.put(LEASES, self._key, b"[]")
        self._renewed = began

    async def end(self) -> None:
        """Let the others know that this replica ends. Raises StoreUnavailable."""
        await self._store.delete(LEASES, self._key)

    # --- others' ----------------------------------------------------------------------------------------------

    def is_dead(self, replica: str) -> bool:
        """Tell whether a replica has ended, as far as ``watch`` has seen. One that was not seen yet lives."""
        key = f"{GROUP}/{replica}"
        if key == self._key:
            return False
        if key in self._ended:
            return True
        if key not in self._sightings.seen:
            self._asked.add(key)
            return False
        return self._sightings.is_silent(key)

    async def watch(self) -> set[str]:
        """Look at the rows of all replicas: those of the living, this one included. Raises StoreUnavailable."""
        # One that is asked for from now on may be about to write its row.
        missed = set(self._asked)
        rows = {row.key: row async for row in every_row(self._store, LEASES, GROUP)}
        silent, gone = self._sightings.look(rows, self._now())
        self._ended = (self._ended if len(self._ended) < MOST_ENDED else set()) | missed.union(gone)
        self._ended -= rows.keys()
        self._asked -= missed
        return {key for key in rows if key == self._key or key not in silent}

    def is_first(self, living: set[str]) -> bool:
        """Tell whether this replica is the one of the living that does what one is enough for."""
        return min(living, default=self._key) == self._key

    async def forget_dead(self) -> bool:
        """Delete the rows of the replicas that have ended: True if there were any. Raises StoreUnavailable."""
        silent = {key: seen for key, seen in self._sightings.seen.items() if self._sightings.is_silent(key)}
        silent.pop(self._key, None)
        for key, seen in silent.items():
            with contextlib.suppress(Conflict):
                await self._store.delete(LEASES, key, expected=seen.found.version)
        return bool(silent)


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
