"""Changes of a scope's rows, in one step with the scope's head where replicas share the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from adapter.relay.files.file_index import STALE, FileIndex, ScopeFiles
from adapter.rules.files.file_records import FileKind, FileRecord, size_in
from adapter.rules.files.scope_heads import encode
from adapter.state.port import Conflict, Delete, Put, Store

TABLE = "files"
HEADS = "file_scopes"

EMPTY_KEPT = 3600.0
"""Seconds that the head of a scope without files is kept: a row that is made again would begin at version 1, and a
replica might take it for the one that it knows."""


ENDED_KEPT = 600.0
"""The same for a scope whose session has ended: nobody brings files to it but a request that was under way."""


class HeadWriter:
    """The one writer of the rows of files and heads. ``replica`` is the name of this process among those that share
    the store, ``clock`` gives Unix time.
    """

    def __init__(self, store: Store, index: FileIndex, replica: str, clock: Callable[[], float]) -> None:
        self._store = store
        self._shared = store.shared
        self._index = index
        self._replica = replica
        self._clock = clock

    async def commit(
        self, scope: ScopeFiles, coming: Sequence[Put] = (), going: Sequence[FileRecord] = ()
    ) -> None:
        """Make a change of a scope's files: the rows of those that come, and the files that go.

        Raises Conflict where another replica was first, and StoreUnavailable; nothing is known then of whether the
        change was made, so the scope is read anew before it is used again.
        """
        used = self._in_use(scope, going)
        head = [self._head(scope, used, going)] if self._shared else []
        try:
            rows = await self._store.commit(
                [*head, *(Delete(TABLE, record.key) for record in going), *coming]
            )
        except Conflict:
            scope.epoch = STALE
            raise
        except BaseException:
            scope.epoch = STALE
            self._doubt(scope, coming, going)
            raise
        if head:
            scope.version, scope.announced = rows[0].version, used

    def _doubt(self, scope: ScopeFiles, coming: Sequence[Put], going: Sequence[FileRecord]) -> None:
        """Count files that may have come, until it is known whether they have."""
        scope.doubts |= {record.key: None for record in going}
        for put in coming:
            size = size_in(put.value)
            scope.doubts[put.key] = size
            self._index.ledger.charge(size)

    async def forget_empty_heads(self) -> None:
        """Delete the heads of scopes that had no file for long. Raises StoreUnavailable."""
        for row in await self._store.overdue(HEADS, self._clock()):
            try:
                await self._store.commit([Delete(HEADS, row.key, expected=row.version)])
            except Conflict:
                continue

    def _in_use(self, scope: ScopeFiles, going: Sequence[FileRecord]) -> frozenset[str]:
        gone = {record.key for record in going}
        return frozenset(key for key in scope.held.keys() | scope.lingering if key not in gone)

    def _head(self, scope: ScopeFiles, used: frozenset[str], going: Sequence[FileRecord]) -> Put:
        ledger = self._index.ledger
        begin = len(scope.id) + 1
        holders = {
            replica: sorted(key[begin:] for key in keys) for replica, keys in self._index.living(scope)
        }
        if used:
            holders[self._replica] = sorted(key[begin:] for key in used)
        gone = sum(ledger.entry(record.key) is not None for record in going)
        is_empty = not holders and sum(ledger.count(scope.id, kind) for kind in FileKind) == gone
        due = self._clock() + (ENDED_KEPT if scope.ended else EMPTY_KEPT) if is_empty else None
        return Put(HEADS, scope.id, encode(holders), due, expected=scope.version)
