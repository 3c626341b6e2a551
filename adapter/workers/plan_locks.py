"""The locks of files and state that a supervisor holds for its workers."""

from __future__ import annotations

from pathlib import Path

from adapter.state.lock_file import LockFile, StateLock
from adapter.workers.serve_plan import ServePlan


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


class PlanLocks:
    """The locks of the plans that workers serve, or are to serve."""

    def __init__(self) -> None:
        self._held: dict[str, StorageLock | StateLock] = {}

    def __repr__(self) -> str:
        return f"<PlanLocks: {', '.join(self._held)}>"

    def take(self, plan: ServePlan, wait: float) -> None:
        """Take the locks of the plan's files and state, beside those of plans before it: workers may still use both.

        Raises RootTaken, StateTaken when one is not free within ``wait`` seconds.
        """
        if plan.locked and plan.locked not in self._held:
            self._held[plan.locked] = StorageLock(Path(plan.locked), wait)
        if plan.state and plan.state not in self._held:
            self._held[plan.state] = StateLock(Path(plan.state), wait)

    def keep(self, plan: ServePlan) -> None:
        """Let go of the locks of all other plans. A worker that serves one of them has them itself until it ends."""
        for name in self._held.keys() - {plan.locked, plan.state}:
            self._held.pop(name).close()
