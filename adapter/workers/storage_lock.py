"""The lock of the store of files, held for all workers by their supervisor."""

from __future__ import annotations

from pathlib import Path

from adapter.state.lock_file import LockFile


class RootTaken(Exception):
    """Another adapter uses the directory, or it cannot be locked. The text is for operators."""

    event = "the store of files cannot be used"
    setting = "storage.root"


class StorageLock:
    """The lock of one ``storage.root``, held by this process and its workers: it is free when all of them have ended.

    Raises RootTaken when it is not free within ``wait`` seconds.
    """

    def __init__(self, root: Path, wait: float) -> None:
        self.root = root
        try:
            self._file = LockFile(root / "lock")
        except OSError as error:
            raise RootTaken(f"storage.root cannot be created or opened: {error.strerror}") from error
        try:
            self._file.take(wait)
        except BlockingIOError:
            raise RootTaken("another adapter uses it: stop it, or set another storage.root") from None
        except OSError as error:
            raise RootTaken(
                "its file system does not support locks: set storage.lock_mode to none, and make sure that no "
                "other adapter uses it"
            ) from error

    def close(self) -> None:
        """Let go of the lock in this process; workers that run keep it."""
        self._file.close()
