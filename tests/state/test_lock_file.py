"""The lock of a state file: one adapter at a time, until it and all that it forked have ended."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from adapter.state.lock_file import LockFile, StateLock, StateTaken, lock_path


def test_one_adapter_at_a_time(tmp_path: Path) -> None:
    """The sentence names the file and the ways to have several processes; another file is free."""
    state = tmp_path / "state" / "adapter.sqlite3"
    lock = StateLock(state, 0)
    with pytest.raises(StateTaken, match="another adapter uses") as taken:
        StateLock(state, 0)
    assert str(state) in str(taken.value) and "core.workers" in str(taken.value)
    StateLock(tmp_path / "state" / "other.sqlite3", 0).close()
    lock.close()
    lock.close()
    StateLock(state, 0).close()
    assert not state.exists()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_they_are_their_owner_s_alone(tmp_path: Path, umask: int) -> None:
    """Whoever may open the lock of another user may keep it; whatever the umask is, and after an upgrade too."""
    state = tmp_path / "state" / "adapter.sqlite3"
    before = os.umask(umask)
    try:
        StateLock(state, 0).close()
    finally:
        os.umask(before)
    assert state.parent.stat().st_mode & 0o777 == 0o700
    assert lock_path(state).stat().st_mode & 0o777 == 0o600
    lock_path(state).chmod(0o644)
    StateLock(state, 0).close()
    assert lock_path(state).stat().st_mode & 0o777 == 0o600


def test_a_directory_of_the_operator_keeps_its_permissions(tmp_path: Path) -> None:
    """Others may need them."""
    tmp_path.chmod(0o755)
    StateLock(tmp_path / "adapter.sqlite3", 0).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_two_names_of_one_file_have_one_lock(tmp_path: Path) -> None:
    """SQLite follows links, too. One that leads nowhere yet is where the file will be; a circle is no file."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "s")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    lock = StateLock(tmp_path / "elsewhere" / "s", 0)
    with pytest.raises(StateTaken):
        StateLock(tmp_path / "link", 0)
    StateLock(tmp_path / "circle", 0).close()
    lock.close()
    StateLock(tmp_path / "link", 0).close()


def test_one_that_ends_is_waited_for(tmp_path: Path) -> None:
    """As where an adapter is replaced by another."""
    lock = StateLock(tmp_path / "s", 0)
    ending = threading.Timer(0.2, lock.close)
    ending.start()
    StateLock(tmp_path / "s", 30).close()
    ending.join()


def test_it_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """A worker that still runs may still write."""
    lock = StateLock(tmp_path / "s", 0)
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    lock.close()
    with pytest.raises(StateTaken):
        StateLock(tmp_path / "s", 0)
    os.close(writer)
    os.waitpid(worker, 0)
    os.close(reader)
    StateLock(tmp_path / "s", 0).close()


def test_a_place_without_locks_keeps_nobody_out(tmp_path: Path) -> None:
    """Opening the state there tells what is wrong. A link in place of the lock is not followed."""
    (tmp_path / "file").touch()
    StateLock(tmp_path / "file" / "s", 0).close()
    lock_path(tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    StateLock(tmp_path / "s", 0).close()
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(OSError, match="-lock"):
        LockFile(lock_path(tmp_path / "s"))
