"""This replica's share of ``storage.max_size``, which all files of all scopes have together.

Where replicas share the store, one row has the sum of all files and of all bytes that replicas may still add. A replica
takes a chunk of what is left, adds files out of it without asking, and gives back what it does not need. What is taken
never exceeds the limit, so neither do the files; a replica may refuse a file though another one has bytes left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

import orjson

from adapter.errors import StoreUnavailable
from adapter.relay.files.head_writer import TABLE as FILES
from adapter.relay.files.replica_leases import GROUP, LeaseRow, LeaseState, ReplicaLeases
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Ledger
from adapter.state.paging import every_row
from adapter.state.port import ABSENT, STORE_ONLY, Change, Conflict, Delete, Put, Row, Store

TABLE = "file_totals"

CHUNK = 16 << 20
"""Bytes that a replica takes at once, and keeps while it does not need them; of a small limit a ``PARTS``th part."""

PARTS = 64

LONGEST_REST = 60
"""Rounds between two counts of all files while they go on changing; five minutes."""

TRIES = 20


class StorageShare:
    """Keeps ``ledger.spare``. Without a limit, or without other replicas, it asks nobody."""

    def __init__(self, store: Store, ledger: Ledger, replica: str, now: Callable[[], float]) -> None:
        self.leases = ReplicaLeases(store, replica, self._state, self._forfeit, now)
        self._store = store
        self._ledger = ledger
        self._limit = ledger.limits.total_bytes
        self._chunk = min(CHUNK, (self._limit or 0) // PARTS)
        self._lock = asyncio.Lock()
        self._added = 0
        self._before = 0
        self._census: _Census | None = None
        self._rest = self._pause = self._repaired = 0

    def __repr__(self) -> str:
        return f"<StorageShare: {self._ledger.spare} bytes to spare>"

    async def open(self) -> None:
        """Find out what is left. Raises StoreUnavailable."""
        if self._store.shared:
            if self._limit is not None:
                self._ledger.spare = 0
                # Before any file goes: what it leaves is this replica's to spare then.
                with contextlib.suppress(Conflict):
                    if (total := await self._total()).version == ABSENT:
                        await self._store.commit([_put(total)])
            await self.leases.renew()
            await self.leases.watch()
            return
        # Nobody keeps it up to date while one process alone uses the store, whose disk may be full just now.
        if await self._store.get(TABLE, GROUP) is not None:
            await self._store.delete(TABLE, GROUP)
        if self._limit is not None:
            self._ledger.spare = self._limit - await self._sum()

    async def close(self) -> None:
        """Give everything back, and let the others know that this replica ends. Raises StoreUnavailable."""
        if not self._store.shared:
            return
        if self._limit is None:
            await self._store.commit([self.leases.delete()])
            return
        async with self._lock:
            for _ in range(TRIES):
                total = await self._total()
                spare = self._ledger.spare or 0
                end = _put(total._replace(taken=total.taken - spare, ended=total.ended + 1))
                with contextlib.suppress(Conflict):
                    await self._store.commit([end, self.leases.delete()])
                    return
                await self.leases.reconcile()

    # --- a change of files ------------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """See that no other replica has taken this one for ended, before a change of files. Raises StoreUnavailable."""
        if self._store.shared and not self.leases.is_current:
            await self._renew()

    async def _renew(self) -> None:
        # One write at a time: each says what there is to spare when those before it have ended.
        async with self._lock:
            await self.leases.renew()

    async def draw(self, lacking: int) -> None:
        """Have so many bytes more to spare, if all files together leave them. Raises StoreUnavailable."""
        if lacking <= 0 or self._limit is None or not self._store.shared:
            return None
        async with self._lock:
            for _ in range(TRIES):
                try:
                    return await self._draw(lacking, self._limit)
                except Conflict:
                    await self.leases.reconcile()
        raise StoreUnavailable("Other replicas change the sum of all files all the time; try again.")

    async def _draw(self, lacking: int, limit: int) -> None:
        total = await self._total()
        free = limit - total.taken
        if free < lacking:
            return
        grant = min(free, max(lacking, self._chunk))
        await self._move(total, grant)
        self._spare(grant)

    # --- again and again --------------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Renew the lease, give back what is not needed, and find what replicas have left that ended. Raises
        StoreUnavailable, also while others go on in memory: there all other replicas stand still."""
        token = STORE_ONLY.set(True)
        try:
            await self._tend()
        finally:
            STORE_ONLY.reset(token)

    async def _tend(self) -> None:
        idle = self._ledger.added == self._added
        self._added = self._ledger.added
        await self._give_back(0 if idle else self._chunk)
        await self._renew()
        living = await self.leases.watch()
        # One replica is enough for those that have ended; each knows of its own failures alone.
        first = self.leases.is_first(living)
        if self._limit is None and first:
            await self._forget_dead()
        elif self._limit is not None and (
            first or self._ledger.leaks > self._repaired or self._census is not None
        ):
            await self._count(living)

    async def _give_back(self, kept: int) -> None:
        """Give back what is to spare beyond ``kept`` bytes. Where another replica is first, the next time."""
        if self._surplus(kept) <= 0:
            return
        async with self._lock:
            total = await self._total()
            surplus = self._surplus(kept)  # some of it may have been used meanwhile
            self._spare(-surplus)
            try:
                await self._move(total, -surplus)
            except Conflict:
                self._spare(surplus)
                await self.leases.reconcile()

    def _surplus(self, kept: int) -> int:
        ledger = self._ledger
        return 0 if ledger.spare is None else max(0, ledger.spare - ledger.staged - kept)

    async def _forget_dead(self) -> None:
        for change in self.leases.dead():
            try:
                await self._store.commit([change])
            except Conflict:
                continue

    # --- the sum of all files ---------------------------------------------------------------------------------

    async def _count(self, living: dict[str, LeaseRow]) -> None:
        """Find the true sum again, over several rounds, when a replica has ended or a write has failed.

        Files that come meanwhile count, those that go do not, so the sum that is found is never too small.
        """
        if self._census is None:
            await self._begin_census(living)
        elif not self._census.holds(living):
            self._census = None
        elif self._census.is_over(living):
            census, self._census = self._census, None
            await self._end_census(census)

    async def _begin_census(self, living: dict[str, LeaseRow]) -> None:
        dead, leaks = self.leases.dead(), self._ledger.leaks
        self._rest = max(0, self._rest - 1)
        if dead or (leaks > self._repaired and not self._rest):
            total, found = await self._total(), await self._sum()
            self._census = _Census(living, _Start(total.ended, found, leaks), await self.leases.rows(), dead)

    async def _end_census(self, census: _Census) -> None:
        total = await self._total()
        rows = await self.leases.rows()
        most = census.most(rows, total.ended)
        if most is None:
            return
        with contextlib.suppress(Conflict):
            put = _put(total._replace(taken=min(total.taken, most)))
            await self._store.commit([put, *census.dead])
            if census.was_quiet(rows):
                self._rest, self._pause, self._repaired = 0, 0, census.leaks
            else:
                # The sum is too large by what went meanwhile: it is found again, but not all the time.
                self._ledger.leaks += 1
                self._rest = self._pause = min(LONGEST_REST, 2 * self._pause + 1)

    async def _sum(self) -> int:
        """The bytes of all files that have a row."""
        found = 0
        async for row in every_row(self._store, FILES):
            found += size_in(row.value)
        return found

    async def _total(self) -> _Total:
        row = await self._store.get(TABLE, GROUP)
        if row is not None:
            return _Total(row.version, *orjson.loads(row.value))
        return _Total(ABSENT, await self._sum(), 0)

    async def _move(self, total: _Total, size: int) -> None:
        """Add ``size`` to what is taken. Raises Conflict, StoreUnavailable."""
        began = self.leases.now()
        changes: list[Change] = [
            _put(total._replace(taken=total.taken + size)),
            self.leases.put(size),
        ]
        try:
            rows: list[Row] = await self._store.commit(changes)
        except Conflict:
            raise
        except BaseException:
            # A caller that was cancelled does not know either.
            self._ledger.leaks += 1
            raise
        self.leases.wrote(rows[1], began)

    def _spare(self, size: int) -> None:
        if self._ledger.spare is not None:
            self._ledger.spare += size

    def _state(self) -> LeaseState:
        ledger = self._ledger
        return LeaseState(ledger.added - self._before, (ledger.spare or 0) + ledger.leaving, ledger.changes)

    def _forfeit(self) -> None:
        """The others took this replica for ended, and what it had to spare for free."""
        self._before = self._ledger.added
        if self._ledger.spare is not None:
            self._ledger.spare = 0


class _Total(NamedTuple):
    """The row of the sum: bytes that are taken, and how many replicas have given everything back and ended."""

    version: int
    taken: int
    ended: int


def _put(total: _Total) -> Put:
    return Put(TABLE, GROUP, orjson.dumps([total.taken, total.ended]), expected=total.version)


class _Start(NamedTuple):
    """When a count began: the replicas that had ended, what was ``found``, and the leaks until then."""

    ended: int
    found: int
    leaks: int


class _Census:
    """A sum of all files, found while they changed. ``before`` and ``after`` are the leases when it began and when
    it had ended, ``dead`` deletes those of replicas that had ended before.

    A file that is added moves bytes from what a replica may still add to what it ever added, so their sum tells of
    files that came behind the count, however old the row of the lease is.
    """

    def __init__(
        self,
        before: dict[str, LeaseRow],
        start: _Start,
        after: dict[str, LeaseRow],
        dead: list[Delete],
    ) -> None:
        self.dead = dead
        self.leaks = start.leaks
        self._keys = {change.key for change in dead}
        self._added = {key: row.state.added for key, row in before.items()}
        self._changes = {key: row.state.changes for key, row in before.items()}
        self._start = start
        self._versions = {key: row.version for key, row in after.items() if key not in self._keys}

    def holds(self, living: dict[str, LeaseRow]) -> bool:
        """False when a replica has ended meanwhile, so that nobody tells what it added."""
        return self._versions.keys() <= living.keys()

    def is_over(self, living: dict[str, LeaseRow]) -> bool:
        """True when each replica has told of the files that went until the sum was found."""
        # One write may have been under way already when it was found.
        return all(living[key].version >= version + 2 for key, version in self._versions.items())

    def was_quiet(self, rows: dict[str, LeaseRow]) -> bool:
        """True when nothing changed meanwhile, so that the sum is exact."""
        changes = {key: row.state.changes for key, row in rows.items() if key not in self._keys}
        return changes == {key: number for key, number in self._changes.items() if key not in self._keys}

    def most(self, rows: dict[str, LeaseRow], ended: int) -> int | None:
        """What all files have at most, together with what replicas may still add; None when one has ended meanwhile."""
        states = {key: row.state for key, row in rows.items() if key not in self._keys}
        if ended != self._start.ended or not self._added.keys() <= states.keys():
            return None
        return self._start.found + sum(
            state.added - self._added.get(key, 0) + state.unspent for key, state in states.items()
        )
