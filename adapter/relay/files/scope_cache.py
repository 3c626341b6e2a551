"""The scopes that are in use here, kept in memory beside the rows that hold the truth.

A scope is read when it is first used, and forgotten when it was not used for a while. Where replicas share the store,
each change of a scope's files also writes the scope's head: a scope is as it was read while its head's version is. All
rows of files and heads are read and written here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from adapter.errors import StoreUnavailable
from adapter.files.port import FileStore
from adapter.relay.files.file_index import FileIndex, ScopeFiles
from adapter.rules.files.file_records import (
    FileKind,
    FileRecord,
    Holders,
    decode,
    decode_head,
    encode,
    encode_head,
)
from adapter.state.port import (
    ABSENT,
    STALE,
    Conflict,
    Delete,
    Put,
    Row,
    Store,
    StoreListener,
    every_row,
    group_of,
)

TABLE = "files"
HEADS = "file_scopes"

EMPTY_KEPT = 3600.0
"""Seconds that the head of a scope without files is kept: a row that is made again would begin at version 1, and a
replica might take it for the one that it knows."""

ENDED_KEPT = 600.0
"""The same for a scope whose session has ended: nobody brings files to it but a request that was under way."""

MOST_SCOPES = 4096
"""Scopes that are known at once, but for those in which something is held."""


@dataclass(eq=False)
class ScopeCache(StoreListener):
    """Reads scopes into the index, and writes their changes. ``replica`` is the name of this process among those that
    share the store.

    ``on_read`` is called with a scope's id when its files were read, and ``on_gone`` with each file that somebody else
    has removed.
    """

    store: Store
    files: FileStore
    index: FileIndex
    replica: str
    log: FilteringBoundLogger
    on_gone: Callable[[FileRecord], None]

    def __post_init__(self) -> None:
        self.is_shared = self.store.shared
        """True where other replicas may change the files of scopes."""
        self.on_read: list[Callable[[str], Awaitable[None]]] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._all_known = False
        if self.store.shared:
            self.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<ScopeCache: {len(self._locks)} scopes being changed, {self.index!r}>"

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
        return self._all_known and self.index.scopes.get(scope_id) is None

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
        self.index.changed(key)
        self.doubt(key)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self.index.epoch += 1

    # --- reading ----------------------------------------------------------------------------------------------

    async def know(self, scope_id: str) -> None:
        """Let the index know the scope as it is now. Raises StoreUnavailable, StorageFailed."""
        if not self.index.is_fresh(scope_id):
            async with self.lock(scope_id):
                await self.confirm(scope_id)

    def doubt(self, scope_id: str) -> None:
        """Have the scope confirmed when it is used next: another replica may have changed it a moment ago."""
        if (scope := self.index.scopes.get(scope_id)) is not None:
            scope.epoch = STALE

    async def confirm(self, scope_id: str) -> ScopeFiles:
        """The scope as it is now. The caller has its lock. Raises as ``know`` does."""
        scope = self.index.scopes.get(scope_id)
        if scope is None or scope.epoch != self.index.epoch:
            return await self._read(scope_id, anew=False)
        scope.used = True
        return scope

    async def read(self, scope_id: str) -> ScopeFiles:
        """As ``confirm``, with the times at which other replicas have used its files last."""
        return await self._read(scope_id, anew=True)

    async def _read(self, scope_id: str, *, anew: bool) -> ScopeFiles:
        with self.index.reading(scope_id) as read:
            # The head first: files that come or go behind it make the next write of the head fail.
            row = await self.store.get(HEADS, scope_id) if self.is_shared else None
            version = ABSENT if row is None else row.version
            scope = self.index.scopes.get(scope_id)
            if scope is None or anew or scope.doubts or scope.version != version:
                scope = await self._adopt(scope_id, row, await self._rows(scope_id))
        scope.epoch = read.epoch
        scope.used = True
        return scope

    async def _rows(self, scope_id: str) -> list[Row]:
        if self.is_empty(scope_id):
            return []
        return [row async for row in every_row(self.store, TABLE, scope_id)]

    async def _adopt(self, scope_id: str, head_row: Row | None, rows: list[Row]) -> ScopeFiles:
        holders = {} if head_row is None else _head(head_row)
        known = self.index.scopes.get(scope_id)
        found = self._decoded(rows)
        missing = await self._missing(found if known is None or known.doubts else {})
        if known is None:
            self._make_room()
        scope = self.index.open_scope(scope_id)
        # What is in doubt may be another replica's doing, which then counts twice until all files are counted.
        ours, scope.doubts = scope.doubts, set()
        for record in [record for key, record in scope.records.items() if key not in found]:
            self.index.hide(record)
            if record.key in ours:
                self.index.charge(-record.content.size)
            self.on_gone(record)
        for key, (record, due) in found.items():
            self.index.load(scope.records.get(key, record), due, charged=key in ours)
        self._note_head(scope, holders, head_row)
        if missing:
            await self._drop_missing(scope, missing)
        if found:
            for callback in self.on_read:
                await callback(scope_id)
        return scope

    def _decoded(self, rows: list[Row]) -> dict[str, tuple[FileRecord, float | None]]:
        found: dict[str, tuple[FileRecord, float | None]] = {}
        for row in rows:
            try:
                found[row.key] = decode(row.value), row.due
            except ValueError:  # one that another version wrote harms no other
                self.log.warning("a file record cannot be read and is passed over")
        return dict(sorted(found.items(), key=lambda item: item[1][0].created))

    def _note_head(self, scope: ScopeFiles, found: Holders, row: Row | None) -> None:
        scope.version = ABSENT if row is None else row.version
        holders = {replica: frozenset(f"{scope.id}/{key}" for key in keys) for replica, keys in found.items()}
        scope.announced = holders.pop(self.replica, frozenset())
        scope.holders = holders

    async def overdue(self) -> set[str]:
        """The ids of scopes with a file whose time is over, as far as one page of rows tells."""
        now = self.index.now
        found = {group_of(row.key) for row in await self.store.overdue(TABLE, now)}
        scopes = self.index.scopes.values()
        return found | {scope.id for scope in scopes if scope.dues and scope.dues[0][0] <= now}

    # --- files that are gone ----------------------------------------------------------------------------------

    async def _missing(self, found: dict[str, tuple[FileRecord, float | None]]) -> list[FileRecord]:
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
            self.index.hide(record)
            self.index.charge(-record.content.size)

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
        used = frozenset((scope.held.keys() | scope.lingering | made) - gone)
        empty = not coming and scope.records.keys() <= gone
        head = [self._head(scope, used, empty=empty)] if self.is_shared else []
        puts = [Put(TABLE, each.key, encode(each), self.index.expires_at(each), ABSENT) for each in coming]
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
        holders = dict(self.index.living(scope)) | ({self.replica: used} if used else {})
        value = {replica: sorted(key[begin:] for key in keys) for replica, keys in holders.items()}
        due = self.index.now + (ENDED_KEPT if scope.ended else EMPTY_KEPT) if empty and not holders else None
        return Put(HEADS, scope.id, encode_head(value), due, expected=scope.version)

    async def forget_empty_heads(self) -> None:
        """Delete the heads of scopes that had no file for long. Raises StoreUnavailable."""
        for row in await self.store.overdue(HEADS, self.index.now):
            with contextlib.suppress(Conflict):
                await self.store.commit([Delete(HEADS, row.key, expected=row.version)])

    # --- dropping ---------------------------------------------------------------------------------------------

    def drop_unused(self) -> None:
        """Forget the scopes that were not used since this was last called."""
        for scope in list(self.index.scopes.values()):
            if scope.used:
                scope.used = False
            elif self._is_idle(scope):
                self._close_scope(scope)

    def _make_room(self) -> None:
        """Forget the scope that came first, if there are very many."""
        scopes = self.index.scopes
        if len(scopes) >= MOST_SCOPES and (idle := next(filter(self._is_idle, scopes.values()), None)):
            self._close_scope(idle)

    def _close_scope(self, scope: ScopeFiles) -> None:
        self._all_known = self._all_known and not scope.records
        self.index.scopes.pop(scope.id, None)

    def _is_idle(self, scope: ScopeFiles) -> bool:
        return not self.is_changing(scope.id) and self.index.is_idle(scope)


def _head(row: Row) -> Holders:
    try:
        return decode_head(row.value)
    except ValueError:
        raise StoreUnavailable(
            "The files of this session were changed by another version of the adapter."
        ) from None
