"""The plan of workers: read in a child process, and carried to workers as bytes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from adapter.app.file_keeping import build_shelf
from adapter.app.state import build_store
from adapter.errors import StorageFailed
from adapter.files.shelf import Shelf
from adapter.settings.file.load import load
from adapter.settings.file.reading import ReadSettings
from adapter.state.lock_file import StateLock, StateTaken
from adapter.workers.serve_plan import (
    PlanLocks,
    PlanRefused,
    RootTaken,
    ServePlan,
    StorageLock,
    begin_reading,
    plan_of,
)

SERVERS = [{"id": "one", "mount_path": "/mcp", "upstream": {"url": "http://127.0.0.1:9/mcp"}}]


def read_plan() -> ServePlan:
    core = {"workers": 3, "host": "127.0.0.1", "port": 80, "shutdown_grace_seconds": 7, "log_level": "error"}
    settings = load(None, overrides={"core": core, "servers": SERVERS}, environ={})
    return plan_of(ReadSettings(settings, ()), programs=False)


def refuse() -> ServePlan:
    raise PlanRefused("core.port: must be a number", 2)


def fail() -> ServePlan:
    os._exit(3)


def test_a_plan_comes_back_whole() -> None:
    """The supervisor's own values, and all settings for workers."""
    plan = begin_reading(read_plan).result()
    assert plan[:7] == (3, "127.0.0.1", 80, 7, "error", False, "")
    assert plan.state == str(Path("data/state/adapter.sqlite3").absolute())
    assert plan.address == ("127.0.0.1", 80)
    assert pickle.loads(plan.settings).settings.servers[0].id == "one"


async def test_a_worker_whose_settings_want_but_one_is_not_alone(tmp_path: Path) -> None:
    """Those before it serve until it does, and the supervisor has the lock on the files: it shares the state, and takes
    no lock."""
    core, storage = {"workers": 1, "host": "127.0.0.1"}, {"root": str(tmp_path)}
    settings = load(None, overrides={"core": core, "storage": storage, "servers": SERVERS}, environ={})
    assert not build_store(settings).shared
    plan = plan_of(ReadSettings(settings, ()), programs=False)
    worker = pickle.loads(plan.settings).settings
    assert plan.workers == 1 and build_store(worker).shared
    lock = StorageLock(tmp_path, 0)
    shelf = build_shelf(worker)
    await shelf.open()
    await shelf.close()
    with pytest.raises(StorageFailed):
        await build_shelf(settings).open()
    lock.close()


def test_a_refusal_comes_back_as_one() -> None:
    """With its sentence and the exit status of a start that fails so."""
    with pytest.raises(PlanRefused, match="must be a number") as refused:
        begin_reading(refuse).result()
    assert refused.value.status == 2


def test_a_reading_that_dies_is_a_refusal() -> None:
    """The child has written to stderr what there was to say."""
    with pytest.raises(PlanRefused, match="has failed") as refused:
        begin_reading(fail).result()
    assert refused.value.status == 1


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
