"""The sum of all files, which ``storage.max_size`` limits, with the leases of the replicas that share them; and the
cleanup that makes room: files that expired, files of scopes that are gone, and bytes that no record knows.

One process counts all files at its start, and goes on from there. Where replicas share the store each counts them again
every few seconds, so the limit may be passed by what other replicas take in meanwhile.

Who lives is judged without the clock of any other machine. Each replica writes its row again and again; another one
takes it for ended when the row is gone, or has not changed for the length of a lease by that other one's own clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import StoreUnavailable
from adapter.relay.files.file_index import FileIndex
from adapter.relay.files.scope_cache import TABLE, ScopeCache
from adapter.relay.files.scope_cache import TABLE as FILES
from adapter.rules.access.principals import Scope
from adapter.rules.access.replicas import Sightings
from adapter.rules.files.file_records import FileRecord, Place, decode, record_key, size_in
from adapter.state.port import Conflict, Row, Store, every_row, store_only

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
        self.store, self.now = store, now
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


@dataclass(eq=False, repr=False)
class StorageTotal:
    """Keeps ``index.spare``, what all files together leave."""

    index: FileIndex
    leases: ReplicaLeases
    _count_at: float = field(default=float("-inf"), init=False)

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
        limit = self.index.limits.total_bytes
        if limit is None or self.index.spare is None:
            return
        began, before, found = self.leases.now(), self.index.spare, 0
        self._count_at = began + COUNT_EVERY  # so that nobody else counts meanwhile
        async for row in every_row(self.leases.store, FILES):
            found += size_in(row.value)
        # What came here meanwhile may be in it or not, and counts twice until the next time. What leaves has no row
        # any more, and counts until its bytes are gone.
        came = max(0, before - self.index.spare)
        self.index.spare = limit - found - came - self.index.leaving
        self._count_at = began + max(COUNT_EVERY, (self.leases.now() - began) / COUNT_SHARE)


PAGES = 20
"""Pages of rows that are looked through in one round for scopes that are gone."""

Gone = Callable[[Scope], Awaitable[bool]]
DropScope = Callable[[str], Awaitable[None]]


@dataclass(eq=False, repr=False, slots=True)
class FileCleanup:
    """Finds what is to go. ``drop_scope`` removes all files of a scope."""

    cache: ScopeCache
    claims: list[Callable[[Place], Awaitable[bool]]] = field(default_factory=list, init=False)
    """Asked for a place that no record of a file knows."""
    _looked_at: str = field(default="", init=False)

    # --- scopes -----------------------------------------------------------------------------------------------

    async def drop_gone(self, gone: Gone, drop_scope: DropScope) -> None:
        """Remove the files of scopes that are ``gone``: so many pages of rows each time, and the next ones then.

        Raises StoreUnavailable.
        """
        for _ in range(PAGES):
            rows = await self.cache.store.scan(TABLE, after=self._looked_at)
            for scope in _owners(rows):
                if await gone(scope):
                    await drop_scope(scope.id)
            self._looked_at = rows[-1].key if rows else ""
            if not rows:
                break
        if self.cache.store.shared:
            await self.cache.forget_empty_heads()

    async def first_scopes(self, most: int) -> list[Scope]:
        """Scopes that hold anything, at most so many. Raises StoreUnavailable."""
        found: dict[str, Scope] = {}
        after = ""
        while len(found) < most and (rows := await self.cache.store.scan(TABLE, after=after)):
            found |= {scope.id: scope for scope in _owners(rows)}
            # Behind all rows of the last scope.
            after = f"{rows[-1].key.partition('/')[0]}0"
        return list(found.values())[:most]

    # --- the sweep --------------------------------------------------------------------------------------------

    async def sweep(self, grace: float) -> None:
        """Remove files that no record knows, and that have not changed for ``grace`` seconds. Raises StorageFailed,
        StoreUnavailable.
        """
        before = self.cache.index.now - grace
        if self.cache.store.shared:
            # By the clock that tells how old files are; and what others are writing is renewed within a lease.
            before = await self.cache.files.renew() - max(grace, LEASE)
        swept = await self.cache.files.sweep(partial(self._is_known, {}), before)
        if swept:
            self.cache.log.info("removed files that no record knows", files=swept)

    async def _is_known(self, read: dict[str, dict[str, bytes]], place: Place) -> bool:
        """Tell whether a record, or else a claim, knows a place. ``read`` has the rows of the last scope that was asked
        for."""
        # A file that comes or goes just now has bytes without a row: the next sweep will see.
        if self.cache.is_changing(place.scope) or self.cache.index.knows(place):
            return True
        if place.scope not in read:  # one scope's files are asked for one after another
            read.clear()
            rows = every_row(self.cache.store, TABLE, place.scope)
            read[place.scope] = {row.key: row.value async for row in rows}
        value = read[place.scope].get(record_key(place.scope, place.kind, place.id))
        if value is not None and ((record := _decoded(value)) is None or record.place == place):
            return True  # also by a row of another version: its file is somebody's
        for claim in self.claims:
            if await claim(place):
                return True
        return False


def _owners(rows: list[Row]) -> list[Scope]:
    """The scopes to which these rows belong."""
    found: dict[str, Scope] = {}
    for row in rows:
        scope_id = row.key.partition("/")[0]
        if scope_id not in found and (record := _decoded(row.value)) is not None:
            found[scope_id] = Scope(scope_id, record.owner)
    return list(found.values())


def _decoded(value: bytes) -> FileRecord | None:
    """The record of a row, None for one that this version cannot read."""
    try:
        return decode(value)
    except ValueError:
        return None
