"""The lock of the store of files, held for all workers by their supervisor."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

WAIT_SECONDS = 10.0
"""Time for which another adapter may still hold the lock, as one that is being replaced does."""

_POLL = 0.1


class RootTaken(Exception):
    """Another adapter uses the directory, or it cannot be locked. The text is for operators."""


class StorageLock:
    """The lock of one ``storage.root``, held by this process and its workers: it is free when all of them have ended.

    Raises RootTaken when it is not free within ``wait`` seconds.
    """

    def __init__(self, root: Path, wait: float) -> None:
        self.root = root
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._number = os.open(
                root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
            )
        except OSError as error:
            raise RootTaken(f"storage.root cannot be created or opened: {error.strerror}") from error
        try:
            self._wait(time.monotonic() + wait)
        except BaseException:
            self.close()
            raise

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RootTaken("another adapter uses it: stop it, or set another storage.root") from None
            except OSError as error:
                raise RootTaken(
                    "its file system does not support locks: set storage.lock_mode to none, and make sure that no "
                    "other adapter uses it"
                ) from error
            else:
                return
            time.sleep(_POLL)

    def close(self) -> None:
        """Let go of the lock in this process; workers that run keep it."""
        os.close(self._number)
