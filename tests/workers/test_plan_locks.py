"""The locks that a supervisor holds: of the plan that its workers serve, and of the one that they are to serve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapter.errors import StorageFailed
from adapter.files.shelf import Shelf
from adapter.state.lock_file import StateLock, StateTaken
from adapter.workers.plan_locks import PlanLocks, RootTaken, StorageLock
from adapter.workers.serve_plan import ServePlan


def plan(root: Path, state: Path) -> ServePlan:
    return ServePlan(2, "127.0.0.1", 80, 10, "info", False, str(root), str(state), b"")


def test_settings_that_are_not_served_leave_no_lock(tmp_path: Path) -> None:
    """Another adapter may use the files of a plan whose state is taken, and those of the served one stay locked."""
    locks = PlanLocks()
    served, refused = (plan(tmp_path / name, tmp_path / name / "state") for name in ("a", "b"))
    locks.take(served, 0)
    other = StateLock(Path(refused.state), 0)
    with pytest.raises(StateTaken):
        locks.take(refused, 0)
    locks.keep(served)
    StorageLock(Path(refused.locked), 0).close()
    with pytest.raises(RootTaken):
        StorageLock(Path(served.locked), 0)
    with pytest.raises(StateTaken):
        StateLock(Path(served.state), 0)
    other.close()


def test_both_plans_are_locked_while_workers_are_replaced(tmp_path: Path) -> None:
    """What two plans have in common is locked once."""
    locks = PlanLocks()
    old, new = plan(tmp_path / "a", tmp_path / "s"), plan(tmp_path / "b", tmp_path / "s")
    locks.take(old, 0)
    locks.take(new, 0)
    for each in (old, new):
        with pytest.raises(RootTaken):
            StorageLock(Path(each.locked), 0)
    locks.keep(old)
    StorageLock(Path(new.locked), 0).close()
    with pytest.raises(StateTaken):
        StateLock(Path(old.state), 0)
    locks.keep(plan(Path(), Path()))
    StateLock(Path(old.state), 0).close()


# --- the lock of the store of files, where workers share it ------------------------------------------------------


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
