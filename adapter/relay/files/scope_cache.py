"""The scopes that are in use here with their files, kept in memory beside the rows that hold the truth.

A scope is read when it is first used, and forgotten when it was not used for a while. Where replicas share the store,
each change of a scope's files also writes the scope's head: a scope is as it was read while its head's version is. All
rows of files and heads are read and written here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from adapter.errors import FileGone, StoreUnavailable
from adapter.files.port import FileStore
from adapter.relay.files.storage_total import TABLE, StorageTotal
from adapter.rules.files.file_records import (
    FileKind,
    FileRecord,
    Holders,
    decode_head,
    encode,
    encode_head,
    record_in,
)
from adapter.rules.files.quota import HeldFiles
from adapter.state.port import (
    ABSENT,
    STALE,
    Conflict,
    Delete,
    Put,
    Row,
    RowReads,
    Store,
    StoreListener,
    every_row,
    group_of,
)

HEADS = "file_scopes"

EMPTY_KEPT = 3600.0
"""Seconds that the head of a scope without files is kept: a row that is made again would begin at version 1, and a
replica might take it for the one that it knows."""

ENDED_KEPT = 600.0
"""The same for a scope whose session has ended: nobody brings files to it but a request that was under way."""

MOST_SCOPES = 4096
"""Scopes that are known at once, but for those in which something is held."""


@dataclass(slots=True, eq=False)
class ScopeFiles(HeldFiles):
    """The files of one scope.

    ``version`` is that of the scope's head when it was last read or written, ``epoch`` the cache's own when it was last
    confirmed. ``holders`` are the keys that other replicas use, ``announced`` those that this one is known to use, and
    ``lingering`` those that it goes on to announce for a while though nobody uses them. ``doubts`` are keys of which a
    failed write leaves open if they have a row. ``used``: since unused scopes were last dropped. ``ended``: its owner
    does not come back.
    """

    id: str
    dues: list[tuple[float, str]] = field(default_factory=list, init=False)
    held: Counter[str] = field(default_factory=Counter, init=False)
    version: int = field(default=ABSENT, init=False)
    epoch: int = field(default=STALE, init=False)
    holders: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    announced: frozenset[str] = field(default=frozenset(), init=False)
    lingering: set[str] = field(default_factory=set, init=False)
    doubts: set[str] = field(default_factory=set, init=False)
    used: bool = field(default=True, init=False)
    ended: bool = field(default=False, init=False)


@dataclass(eq=False)
class ScopeCache(RowReads, StoreListener):
    """All that is known here of files. Only FileTransactions adds and removes, and what another replica has done is
    read; using and finding is everybody's, for a scope that was read.

    ``ttls`` are seconds since the last access, None: as long as the scope. ``clock`` gives Unix time. ``on_read`` is
    called with a scope's id when its files were read, and ``on_gone`` with each file that somebody else has removed.
    ``waited`` gives the keys of a scope's files that calls go on to use whose user is asked.
    """

    store: Store
    files: FileStore
    storage: StorageTotal
    ttls: Mapping[FileKind, float | None]
    clock: Callable[[], float]
    log: FilteringBoundLogger
    on_gone: Callable[[FileRecord], None]

    def __post_init__(self) -> None:
        super().__init__()
        self.is_shared = self.store.shared
        """True where other replicas may change the files of scopes."""
        self.scopes: dict[str, ScopeFiles] = {}
        self.on_read: Callable[[str], Awaitable[None]] | None = None
        self.waited: Callable[[str], Set[str]] = lambda _: frozenset()
        self.waiting: Container[str] = ()
        """The scopes of which ``waited`` knows any: few, and to see that takes no call."""
        self._used: dict[str, FileRecord] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._all_known = False
        if self.store.shared:
            self.store.listeners.append(self)

    def __repr__(self) -> str:
        held = sum(len(scope.held) for scope in self.scopes.values())
        return f"<ScopeCache: {len(self.scopes)} scopes, {held} files held, {self.storage!r}>"

    async def open(self) -> None:
        """Raises StoreUnavailable."""
        # Where there is no file yet and nobody else brings any, all that come are known here.
        self._all_known = not self.store.shared and not await self.store.scan(TABLE, limit=1)

    def close(self) -> None:
        """Hear nothing more of the store."""
        if self in self.store.listeners:
            self.store.listeners.remove(self)

    def is_empty(self, scope_id: str) -> bool:
        """Tell whether the scope certainly holds nothing, without a look at the store."""
        return self._all_known and self.scopes.get(scope_id) is None

    def lock(self, scope_id: str) -> asyncio.Lock:
        """The lock of all changes of a scope here."""
        # Held by those who wait for it, so it lives exactly as long as somebody does.
        return self._locks.setdefault(scope_id, asyncio.Lock())

    def is_changing(self, scope_id: str) -> bool:
        """Tell whether somebody changes the scope here, or waits to."""
        return scope_id in self._locks

    # --- words of other replicas ------------------------------------------------------------------------------

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table != HEADS:
            return
        self.changed(key)
        self.doubt(key)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self.epoch += 1

    # --- finding ----------------------------------------------------------------------------------------------

    def get(self, key: str) -> FileRecord | None:
        """Also one whose time is over."""
        scope = self.scopes.get(key.partition("/")[0])
        return None if scope is None else scope.records.get(key)

    def over(self, scope: ScopeFiles) -> list[FileRecord]:
        """Files of the scope whose time is over and that nobody holds, the first to end first."""
        now = self.clock()
        ended: dict[str, FileRecord] = {}
        found: list[FileRecord] = []
        # A heap, because this is asked at every newcomer: who holds thousands of files must not wait for each.
        while scope.dues and scope.dues[0][0] <= now:
            record = scope.records.get(heappop(scope.dues)[1])
            if record is not None and record.key not in ended:
                ended[record.key] = record
                if self.is_over(record):
                    found.append(record)
        # Those that were used since are due later now; the others until whoever asked has put them out.
        for record in ended.values():
            self._expect_end(scope, record)
        return found

    def _expect_end(self, scope: ScopeFiles, record: FileRecord) -> None:
        """Have ``over`` look at the file when its time is over as things are; it may have been used until then."""
        due = self.expires_at(record)
        if due is not None:
            heappush(scope.dues, (due, record.key))

    async def overdue(self) -> set[str]:
        """The ids of scopes with a file whose time is over, as far as one page of rows tells."""
        now = self.clock()
        found = {group_of(row.key) for row in await self.store.overdue(TABLE, now)}
        scopes = self.scopes.values()
        return found | {scope.id for scope in scopes if scope.dues and scope.dues[0][0] <= now}

    # --- using ------------------------------------------------------------------------------------------------

    def touch(self, record: FileRecord) -> None:
        """The file is used now: its time begins anew."""
        self._use(record, self.clock())

    def keep(self, record: FileRecord, seconds: float) -> None:
        """Let the file's time end so many seconds from now, if that is later than it would."""
        ttl = self.ttls[record.kind]
        if ttl is not None:
            self._use(record, self.clock() + seconds - ttl)

    def _use(self, record: FileRecord, at: float) -> None:
        if (scope := self.scopes.get(record.scope)) is not None:
            scope.touch(record.key, at)
        self._used[record.key] = record

    def hold(self, record: FileRecord) -> Callable[[], None]:
        """Keep a file from eviction and expiry here until the function returned is called. Raises FileGone."""
        scope = self.scopes.get(record.scope)
        if scope is None or record.key not in scope.records:
            raise FileGone()
        scope.held[record.key] += 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self.touch(record)  # it was in use until now
                scope.held[record.key] -= 1
                if not scope.held[record.key]:
                    del scope.held[record.key]

        return release

    def spared(self, scope: ScopeFiles) -> Container[str]:
        """Keys of files in use, here or in other replicas."""
        if not scope.holders and scope.id not in self.waiting:
            return scope.held
        return self.in_use(scope).union(*(keys for _, keys in self._living(scope)))

    def in_use(self, scope: ScopeFiles) -> set[str]:
        """Keys of files in use here, also by a call that waits for its user."""
        if scope.id not in self.waiting:
            return set(scope.held)
        return scope.held.keys() | (self.waited(scope.id) & scope.records.keys())

    def _living(self, scope: ScopeFiles) -> Iterator[tuple[str, frozenset[str]]]:
        """The other replicas that use files of the scope and have not ended, with the keys of these files."""
        is_dead = self.storage.leases.is_dead
        return ((replica, keys) for replica, keys in scope.holders.items() if not is_dead(replica))

    # --- time -------------------------------------------------------------------------------------------------

    def expires_at(self, record: FileRecord) -> float | None:
        """When the file expires if nobody uses it again, in Unix seconds; None: with its scope."""
        ttl = self.ttls[record.kind]
        if ttl is None:
            return None
        scope = self.scopes.get(record.scope)
        used = None if scope is None else scope.last_access.get(record.key)
        return (self.clock() if used is None else used) + ttl

    def is_over(self, record: FileRecord) -> bool:
        """Tell whether the file's time is over, and nobody uses it."""
        due = self.expires_at(record)
        if due is None or due > self.clock():
            return False
        scope = self.scopes.get(record.scope)
        return scope is None or record.key not in self.spared(scope)

    async def write_last_access(self) -> None:
        """Write down when files were last used. Raises StoreUnavailable."""
        used, self._used = self._used, {}
        for scope in self.scopes.values():
            for key in self.in_use(scope) & scope.records.keys():
                scope.touch(key, self.clock())
                used[key] = scope.records[key]
        there = (record for key, record in used.items() if self.get(key) is not None)
        dues = {record.key: due for record in there if (due := self.expires_at(record)) is not None}
        try:
            await self.store.touch(TABLE, dues)
        except BaseException:
            self._used.update(used)
            raise

    # --- reading ----------------------------------------------------------------------------------------------

    async def know(self, scope_id: str) -> ScopeFiles:
        """The scope as it is now. Raises StoreUnavailable, StorageFailed."""
        scope = self._fresh(scope_id)
        if scope is None:
            async with self.lock(scope_id):
                scope = await self.confirm(scope_id)
        return scope

    def _fresh(self, scope_id: str) -> ScopeFiles | None:
        """The scope, used now, if that needs no look at the store."""
        scope = self.scopes.get(scope_id)
        if scope is None or scope.epoch != self.epoch:
            return None
        scope.used = True
        return scope

    def doubt(self, scope_id: str) -> None:
        """Have the scope confirmed when it is used next: another replica may have changed it a moment ago."""
        if (scope := self.scopes.get(scope_id)) is not None:
            scope.epoch = STALE

    async def confirm(self, scope_id: str) -> ScopeFiles:
        """As ``know``. The caller has the scope's lock."""
        return self._fresh(scope_id) or await self.read(scope_id, anew=False)

    async def read(self, scope_id: str, *, anew: bool = True) -> ScopeFiles:
        """As ``confirm``, with the times at which other replicas have used its files last."""
        with self.reading(scope_id) as read:
            # The head first: files that come or go behind it make the next write of the head fail.
            row = await self.store.get(HEADS, scope_id) if self.is_shared else None
            version = ABSENT if row is None else row.version
            scope = self.scopes.get(scope_id)
            if scope is None or anew or scope.doubts or scope.version != version:
                rows = (
                    []
                    if self.is_empty(scope_id)
                    else [each async for each in every_row(self.store, TABLE, scope_id)]
                )
                scope = await self._adopt(scope_id, row, rows)
        scope.epoch = read.epoch
        scope.used = True
        return scope

    async def _adopt(self, scope_id: str, head_row: Row | None, rows: list[Row]) -> ScopeFiles:
        holders = {} if head_row is None else _head(head_row)
        known = self.scopes.get(scope_id)
        found = self._decoded(rows)
        missing = await self._missing(found if known is None or known.doubts else {})
        if known is None:
            self._make_room()
        scope = self.scopes.setdefault(scope_id, ScopeFiles(scope_id))
        # What is in doubt may be another replica's doing, which then counts twice until all files are counted.
        ours, scope.doubts = scope.doubts, set()
        for record in [record for key, record in scope.records.items() if key not in found]:
            self.hide(scope, record)
            if record.key in ours:
                self.storage.charge(-record.content.size)
            self.on_gone(record)
        for key, (record, last_access) in found.items():
            if key in ours and key not in scope.records:
                self.storage.charge(record.content.size)
            self.show(scope, record, last_access)
        self._note_head(scope, holders, head_row)
        if missing:
            await self._drop_missing(scope, missing)
        if found and self.on_read is not None:
            await self.on_read(scope_id)
        return scope

    def _decoded(self, rows: list[Row]) -> dict[str, tuple[FileRecord, float]]:
        """The records of rows in the order they came, each with the time of its last access, by their keys."""
        found: dict[str, tuple[FileRecord, float]] = {}
        for row in rows:
            record = record_in(row.value)
            if record is None:  # one that another version wrote harms no other
                self.log.warning("a file record cannot be read and is passed over")
                continue
            ttl = self.ttls[record.kind]
            last_access = record.created if ttl is None or row.due is None else row.due - ttl
            # The setting may have been another.
            found[row.key] = record, min(last_access, self.clock())
        return dict(sorted(found.items(), key=lambda item: item[1][0].created))

    def _note_head(self, scope: ScopeFiles, found: Holders, row: Row | None) -> None:
        scope.version = ABSENT if row is None else row.version
        holders = {replica: frozenset(f"{scope.id}/{key}" for key in keys) for replica, keys in found.items()}
        scope.announced = holders.pop(self.storage.leases.replica, frozenset())
        scope.holders = holders

    def show(self, scope: ScopeFiles, record: FileRecord, last_access: float) -> None:
        """Let a file be found that is there, used last at that time (Unix seconds)."""
        if record.key in scope.records:
            scope.touch(record.key, last_access)
        else:
            scope.put(record, last_access)
        self._expect_end(scope, record)

    def hide(self, scope: ScopeFiles, record: FileRecord) -> float:
        """Let a file be found no more, though its bytes take their room until they are gone; when it was used last."""
        last_access = scope.take(record)
        if not scope.records:
            scope.dues.clear()
        return last_access

    # --- files that are gone ----------------------------------------------------------------------------------

    async def _missing(self, found: dict[str, tuple[FileRecord, float]]) -> list[FileRecord]:
        if not found:
            return []
        places = {record.place: record for record, _ in found.values()}
        gone = await self.files.missing(list(places))
        return [places[place] for place in gone]

    async def _drop_missing(self, scope: ScopeFiles, records: list[FileRecord]) -> None:
        """Forget rows whose file is not there, unless the scope has changed meanwhile."""
        try:
            await self.commit(scope, going=records)
        except Conflict:
            scope.doubts |= {record.key for record in records}  # looked for again, with what has changed
            return
        self.log.warning("files of earlier records are gone", files=len(records))
        for record in records:
            self.hide(scope, record)
            self.storage.charge(-record.content.size)

    # --- writing ----------------------------------------------------------------------------------------------

    async def commit(
        self, scope: ScopeFiles, coming: Sequence[FileRecord] = (), going: Sequence[FileRecord] = ()
    ) -> None:
        """Write a change of a scope's files, in one step with its head where replicas share the store.

        Raises Conflict where another replica was first, and StoreUnavailable; nothing is known then of whether the
        change was made, so the scope is read anew before it is used again.
        """
        gone = {record.key for record in going}
        # Others spare artifacts that were just made: the call that made them uses them next.
        made = {record.key for record in coming if record.kind is FileKind.ARTIFACT}
        used = frozenset((self.in_use(scope) | scope.lingering | made) - gone)
        empty = not coming and scope.records.keys() <= gone
        head = [self._head(scope, used, empty=empty)] if self.is_shared else []
        puts = [Put(TABLE, each.key, encode(each), self.expires_at(each), ABSENT) for each in coming]
        deletes = [Delete(TABLE, key) for key in gone]
        try:
            rows = await self.store.commit([*head, *deletes, *puts])
        except Conflict:
            scope.epoch = STALE
            raise
        except BaseException:
            scope.epoch = STALE
            scope.doubts |= gone.union(record.key for record in coming)
            raise
        if head:
            scope.version, scope.announced = rows[0].version, used
            scope.lingering |= made

    def _head(self, scope: ScopeFiles, used: frozenset[str], *, empty: bool) -> Put:
        begin = len(scope.id) + 1
        holders = dict(self._living(scope)) | ({self.storage.leases.replica: used} if used else {})
        value = {replica: sorted(key[begin:] for key in keys) for replica, keys in holders.items()}
        due = self.clock() + (ENDED_KEPT if scope.ended else EMPTY_KEPT) if empty and not holders else None
        return Put(HEADS, scope.id, encode_head(value), due, expected=scope.version)

    async def forget_empty_heads(self) -> None:
        """Delete the heads of scopes that had no file for long. Raises StoreUnavailable."""
        for row in await self.store.overdue(HEADS, self.clock()):
            with contextlib.suppress(Conflict):
                await self.store.commit([Delete(HEADS, row.key, expected=row.version)])

    # --- dropping ---------------------------------------------------------------------------------------------

    def drop_unused(self) -> None:
        """Forget the scopes that were not used since this was last called."""
        for scope in list(self.scopes.values()):
            if scope.used:
                scope.used = False
            elif self._can_go(scope):
                self._close_scope(scope)

    def _make_room(self) -> None:
        """Forget the scope that came first, if there are very many."""
        scopes = self.scopes
        if len(scopes) >= MOST_SCOPES and (idle := next(filter(self._can_go, scopes.values()), None)):
            self._close_scope(idle)

    def _close_scope(self, scope: ScopeFiles) -> None:
        self._all_known = self._all_known and not scope.records
        self.scopes.pop(scope.id, None)

    def _can_go(self, scope: ScopeFiles) -> bool:
        return not self.is_changing(scope.id) and self.is_idle(scope)

    def is_idle(self, scope: ScopeFiles) -> bool:
        """Tell whether nothing is lost when the scope is closed."""
        if scope.held or scope.id in self.waiting or scope.lingering or scope.announced or scope.doubts:
            return False
        return self._used.keys().isdisjoint(scope.records)


def _head(row: Row) -> Holders:
    try:
        return decode_head(row.value)
    except ValueError:
        raise StoreUnavailable(
            "The files of this session were changed by another version of the adapter."
        ) from None
