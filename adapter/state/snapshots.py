"""The state store in memory whose rows are copied to a file from time to time, and read from it at start."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence

from structlog.typing import FilteringBoundLogger

from adapter.errors import StoreUnavailable
from adapter.state.memory import MemoryStore
from adapter.state.port import Change, Delete, Put, Row, every_row, group_of
from adapter.state.remembered import RowId
from adapter.state.sqlite import SqliteStore

AT_ONCE = 500
"""Rows that are copied before others get a turn."""


class SnapshotStore(MemoryStore):
    """A MemoryStore; ``file`` has its rows as they were at the last snapshot, at most ``interval`` seconds ago, and at
    the last stop.

    Rows of one group are copied in one step. A process that is killed loses what came after the last snapshot.
    """

    def __init__(self, file: SqliteStore, interval: float, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._file = file
        self._interval = interval
        self._log = log
        # Plain tuples, of which the garbage collector lets go: there is one for each row that changed.
        self._changed: set[tuple[str, str]] = set()
        self._copying: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SnapshotStore: {super().__repr__()}, {len(self._changed)} to copy to {self._file!r}>"

    async def open(self) -> None:
        """Read the file. Raises StoreUnavailable."""
        if self._copying is not None:
            return
        await self._file.open()
        self._clear()
        for table in await self._file.tables():
            async for row in every_row(self._file, table):
                self._keep(table, row)
        self._changed.clear()
        self._copying = asyncio.get_running_loop().create_task(self._copy_always())

    async def close(self) -> None:
        """Copy what has changed since the last snapshot, and close the file. Raises StoreUnavailable."""
        if self._copying is None:
            return
        copying, self._copying = self._copying, None
        copying.cancel()
        await asyncio.wait((copying,))
        try:
            await self.copy()
        finally:
            await self._file.close()

    async def copy(self) -> None:
        """Copy the rows that changed. Raises StoreUnavailable; what could not be copied is tried again."""
        while self._changed:
            places = [RowId(*self._changed.pop()) for _ in range(min(AT_ONCE, len(self._changed)))]
            by_group: dict[str, list[RowId]] = defaultdict(list)
            for place in places:
                by_group[group_of(place.key)].append(place)
            try:
                # Asked in one turn of the loop they are one transaction.
                await asyncio.gather(
                    *(self._file.commit(self._changes(group)) for group in by_group.values())
                )
            except BaseException:
                self._changed.update(places)
                raise

    def _changes(self, places: Sequence[RowId]) -> list[Change]:
        changes: list[Change] = []
        for table, key in places:
            row = self._row(table, key)
            changes.append(Delete(table, key) if row is None else Put(table, key, row.value, row.due))
        return changes

    async def _copy_always(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.copy()
            except StoreUnavailable as error:
                if not failing:
                    self._log.error(
                        "no snapshot of the state can be written",
                        why=str(error),
                        setting="state_persistence.disk",
                    )
                failing = True
            else:
                failing = False

    # --- changes ----------------------------------------------------------------------------------------------

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await super().touch(table, dues)
        self._changed.update((table, key) for key in dues)

    def _put(self, change: Put) -> Row:
        row = super()._put(change)
        self._changed.add((change.table, change.key))
        return row

    def _delete(self, change: Delete) -> None:
        super()._delete(change)
        self._changed.add((change.table, change.key))


async def emptied(file: SqliteStore) -> None:
    """Delete every row of a file that no process uses. Raises StoreUnavailable."""
    await file.open()
    try:
        await file.clear()
    finally:
        with contextlib.suppress(StoreUnavailable):
            await file.close()
