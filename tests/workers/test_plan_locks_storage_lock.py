"""The lock of the store of files, where workers share it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapter.errors import StorageFailed
from adapter.files.shelf import Shelf
from adapter.workers.plan_locks import RootTaken, StorageLock


async def test_it_keeps_others_out(tmp_path: Path) -> None:
    """Another supervisor, and an adapter without workers."""
    lock = StorageLock(tmp_path / "root", 0)
    with pytest.raises(RootTaken, match="another adapter"):
        StorageLock(tmp_path / "root", 0)
    other = Shelf(tmp_path / "root", lock_wait=0)
    with pytest.raises(StorageFailed, match="Another adapter"):
        await other.open()
    lock.close()
    StorageLock(tmp_path / "root", 0).close()


def test_it_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """A worker that still runs may still write."""
    lock = StorageLock(tmp_path, 0)
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    lock.close()
    with pytest.raises(RootTaken):
        StorageLock(tmp_path, 0)
    os.close(writer)
    os.waitpid(worker, 0)
    os.close(reader)
    StorageLock(tmp_path, 0).close()


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    """Said in a sentence."""
    (tmp_path / "file").touch()
    with pytest.raises(RootTaken, match="cannot be created or opened"):
        StorageLock(tmp_path / "file" / "root", 0)
