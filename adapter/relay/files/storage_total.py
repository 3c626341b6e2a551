"""The sum of all files, which ``storage.max_size`` limits, with the leases of the replicas that share them.

One process counts all files at its start, and goes on from there. Where replicas share the store each counts them again
every few seconds, so the limit may be passed by what other replicas take in meanwhile.

Who lives is judged without the clock of any other machine. Each replica writes its row again and again; another one
takes it for ended when the row is gone, or has not changed for the length of a lease by that other one's own clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from adapter.errors import StoreUnavailable
from adapter.rules.access.replicas import Sightings
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Limits
from adapter.state.port import Conflict, Row, Store, every_row, store_only

TABLE = "files"

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

COUNT_EVERY = RENEWAL
"""Seconds between two counts of all files at least."""

COUNT_SHARE = 0.01
"""The share of the time that is spent on counts at most, where there are many files."""


class ReplicaLeases:
    """The lease of this replica, called ``replica``, and those of the others. ``now`` never goes back, in seconds."""

    def __init__(self, store: Store, replica: str, now: Callable[[], float]) -> None:
        self.store, self.replica, self.now = store, replica, now
        self._key = f"{GROUP}/{replica}"
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
        return self.now() - self._renewed < LEASE / 2

    async def renew(self) -> None:
        """Write the row again. Raises StoreUnavailable."""
        began = self.now()
        await self.store.put(LEASES, self._key, b"[]")
        self._renewed = began

    async def end(self) -> None:
        """Let the others know that this replica ends. Raises StoreUnavailable."""
        await self.store.delete(LEASES, self._key)

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

    async def watch(self) -> None:
        """Look at the rows of all replicas. Raises StoreUnavailable."""
        # One that is asked for from now on may be about to write its row.
        missed = set(self._asked)
        rows = {row.key: row async for row in every_row(self.store, LEASES, GROUP)}
        _, gone = self._sightings.look(rows, self.now())
        self._ended = (self._ended if len(self._ended) < MOST_ENDED else set()) | missed.union(gone)
        self._ended -= rows.keys()
        self._asked -= missed

    async def forget_dead(self) -> None:
        """Delete the rows of the replicas that have ended. Raises StoreUnavailable."""
        for key, seen in list(self._sightings.seen.items()):
            if key != self._key and self._sightings.is_silent(key):
                with contextlib.suppress(Conflict):
                    await self.store.delete(LEASES, key, expected=seen.found.version)


@dataclass(eq=False)
class StorageTotal:
    """The sum of all files, whether their scopes are known here or not.

    ``spare`` is what may still come to all scopes together, in bytes, None for any amount; of that ``staged`` are on
    their way. ``leaving`` are those of files whose rows are gone and whose bytes are not.
    """

    limits: Limits
    leases: ReplicaLeases
    staged: int = field(default=0, init=False)
    leaving: int = field(default=0, init=False)
    _count_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.spare = self.limits.total_bytes

    def __repr__(self) -> str:
        return f"<StorageTotal: {self.spare} bytes spare, {self.staged} more staged, {self.leaving} leaving>"

    def lacking(self, size: int, staged: int = 0) -> int:
        """Bytes that all files together leave too few for ``size`` more, ``staged`` of which are staged already; 0 or
        less if there is room."""
        return 0 if self.spare is None else self.staged - staged + size - self.spare

    def stage(self) -> StagedBytes:
        """A newcomer, of which nothing has come yet."""
        return StagedBytes(self)

    def charge(self, size: int) -> None:
        """Count bytes that have come, or have gone if there are less than none."""
        if self.spare is not None:
            self.spare -= size

    async def open(self) -> None:
        """Find out what is left. Raises StoreUnavailable."""
        if self.leases.store.shared:
            await self.leases.renew()
            await self.leases.watch()
        await self._count()

    async def close(self) -> None:
        """Let the others know that this replica ends. Raises StoreUnavailable."""
        if self.leases.store.shared:
            await self.leases.end()

    async def has_room(self, size: int) -> bool:
        """Learn what other replicas have left. True if there is room for so many bytes now."""
        await self.refresh()
        return self.lacking(size) <= 0

    async def refresh(self) -> None:
        """Learn what other replicas have changed, unless that was done a moment ago, or the store is away."""
        if not self.leases.store.shared or self.leases.now() < self._count_at:
            return
        # Memory in place of the store has only some of the rows.
        with store_only(), contextlib.suppress(StoreUnavailable):
            await self._count()

    async def tend(self) -> None:
        """Renew the lease, and count where it is time. Raises StoreUnavailable, also while others go on in memory:
        there all other replicas stand still."""
        with store_only():
            await self.leases.renew()
            await self.leases.watch()
            await self.leases.forget_dead()
        await self.refresh()

    async def _count(self) -> None:
        limit = self.limits.total_bytes
        if limit is None or self.spare is None:
            return
        began, before, found = self.leases.now(), self.spare, 0
        self._count_at = began + COUNT_EVERY  # so that nobody else counts meanwhile
        async for row in every_row(self.leases.store, TABLE):
            found += size_in(row.value)
        # What came here meanwhile may be in it or not, and counts twice until the next time. What leaves has no row
        # any more, and counts until its bytes are gone.
        came = max(0, before - self.spare)
        self.spare = limit - found - came - self.leaving
        self._count_at = began + max(COUNT_EVERY, (self.leases.now() - began) / COUNT_SHARE)


@dataclass(eq=False, slots=True)
class StagedBytes:
    """Bytes of one newcomer that are on disk before it is found. ``size`` of them are counted."""

    storage: StorageTotal
    size: int = field(default=0, init=False)

    def grow(self, size: int) -> None:
        """Raises StorageFull, counting nothing."""
        if size and self.storage.lacking(size) > 0:
            raise self.storage.limits.storage_full
        self.storage.staged += size
        self.size += size

    def shrink(self, size: int) -> None:
        """These bytes are gone, or counted as those of a file."""
        self.storage.staged -= size
        self.size -= size
