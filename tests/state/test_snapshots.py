"""State in memory with snapshots: what a stop, a kill and a full disk leave of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from adapter import log
from adapter.errors import StoreUnavailable
from adapter.state.port import Change, Conflict, Delete, Put, Row
from adapter.state.snapshots import AT_ONCE, SnapshotStore, emptied
from adapter.state.sqlite import SqliteStore


class FailingFile(SqliteStore):
    """Fails while ``is_full``; ``tried`` is set by each attempt to write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_full = False
        self.tried = asyncio.Event()

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        """See Store."""
        self.tried.set()
        if self.is_full:
            raise StoreUnavailable("The disk is full.")
        return await super().commit(changes)


def snapshots(path: Path, interval: float = 3600.0) -> SnapshotStore:
    return SnapshotStore(SqliteStore(path), interval, log.get_logger("test"))


async def test_stop_keeps_everything(tmp_path: Path) -> None:
    """Rows, due times and what was deleted are there after the next start, in every table."""
    path = tmp_path / "snapshot.sqlite3"
    store = snapshots(path)
    await store.open()
    await store.put("sessions", "a/b", b"1", due=5.0)
    await store.put("pins", "x", b"\x00\xff")
    await store.put("pins", "gone", b"")
    await store.copy()
    await store.delete("pins", "gone")
    await store.touch("sessions", {"a/b": 9.0})
    await store.commit([Put("files", "a/c", b"2"), Delete("files", "a/d")])
    with pytest.raises(Conflict):
        await store.commit([Put("files", "a/e", b""), Delete("files", "a/c", expected=7)])
    await store.close()
    again = snapshots(path)
    await again.open()
    assert [(row.value, row.due) for row in await again.scan("sessions")] == [(b"1", 9.0)]
    assert [row.key for row in await again.scan("pins")] == ["x"]
    assert [row.key for row in await again.scan("files")] == ["a/c"]
    assert "0 to copy" in repr(again)
    await again.close()
    await again.close()


async def test_kill_loses_what_came_after_the_last_snapshot(tmp_path: Path) -> None:
    """Only what a snapshot has is there for another process, many rows or few."""
    path = tmp_path / "snapshot.sqlite3"
    store = snapshots(path)
    await store.open()
    for number in range(AT_ONCE + 10):
        await store.put("t", str(number), b"x")
    await store.copy()
    await store.put("t", "late", b"x")
    other = snapshots(path)
    await other.open()
    assert await other.count("t") == AT_ONCE + 10 and await other.get("t", "late") is None
    await other.close()
    await store.close()


async def test_snapshots_come_by_themselves_and_again_after_a_failure(tmp_path: Path) -> None:
    """A file that cannot be written keeps nobody from working, and gets everything when it can be."""
    file = FailingFile(tmp_path / "snapshot.sqlite3")
    file.is_full = True
    store = SnapshotStore(file, 0.01, log.get_logger("test"))
    await store.open()
    await store.put("t", "a", b"1")
    async with asyncio.timeout(10):
        await file.tried.wait()
        file.tried.clear()
        await file.tried.wait()
        file.is_full = False
        while not await file.count("t"):
            await asyncio.sleep(0)
    await store.close()


async def test_file_is_emptied(tmp_path: Path) -> None:
    """No row of any table is left, and the file can be used on."""
    file = SqliteStore(tmp_path / "state.sqlite3")
    await file.open()
    await file.put("a", "1", b"")
    await file.put("b", "1", b"")
    assert await file.tables() == ["a", "b"]
    await file.close()
    await emptied(file)
    await file.open()
    assert await file.tables() == []
    await file.close()
