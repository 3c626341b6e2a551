"""Locks of one adapter alone: on a file that says who uses what lies beside it, and on the file of its state; and the
directory of such a file.

A supervisor of workers imports this, so it loads nothing that serving needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

WAIT_SECONDS = 10.0
"""Time for which another adapter may still hold a lock, as one that is being replaced does."""

_POLL = 0.1


def make_private(directory: Path) -> None:
    """Make a directory for its owner alone, whatever the umask is. One that is there stays as its operator made it.

    Raises OSError.
    """
    try:
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not directory.is_dir():
            raise
    else:
        directory.chmod(0o700)


class LockFile:
    """A lock held by this process and those that it forks: it is free when all of them have ended.

    Its file and directory are made where they are missing, and stay. Only its owner may open the file: a lock needs no
    more than that, and whoever holds it keeps the adapter from starting. Raises OSError where that is impossible.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        # An earlier version made it for everybody.
        with contextlib.suppress(PermissionError):
            os.fchmod(self._number, 0o600)

    def take(self, wait: float) -> None:
        """Take the lock, or close the file. Raises BlockingIOError when the lock is not free within ``wait`` seconds,
        and another OSError on a file system without locks.
        """
        try:
            self._take(time.monotonic() + wait)
        except BaseException:
            self.close()
            raise

    def _take(self, deadline: float) -> None:
        while True:
            try:
                return fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL)

    def close(self) -> None:
        """Let go of the lock in this process; those that it has forked keep it."""
        os.close(self._number)


class StateTaken(Exception):
    """Another adapter uses the state file. The text is for operators."""

    event = "the state store cannot be used"
    setting = "state_persistence"


def lock_path(state: Path) -> Path:
    """The file whose lock is that of a state file, by whatever link that is reached. SQLite has locks of its own on
    the state file.
    """
    return Path(f"{os.path.realpath(state)}-lock")


class StateLock:
    """The lock of one SQLite file of state: what a process keeps of it in memory, another would not know to be old.

    It is held by this process and those that it forks. Where locks are not to be had, nobody is kept out. Raises
    StateTaken when it is not free within ``wait`` seconds.
    """

    def __init__(self, state: Path, wait: float) -> None:
        self.state = state
        self._file: LockFile | None = None
        try:
            path = lock_path(state)
            make_private(path.parent)
            file = LockFile(path)
            file.take(wait)
        except BlockingIOError:
            raise StateTaken(
                f"another adapter uses {state}, which is for one alone: stop it, or give this one another file; for "
                "more processes set core.workers, for more adapters state_persistence.type redis"
            ) from None
        except OSError:
            # A directory that cannot be written is told of by those who open the state file in it.
            return
        self._file = file

    def close(self) -> None:
        """Let go of the lock in this process; those that it has forked keep it."""
        if self._file is not None:
            self._file.close()
            self._file = None
