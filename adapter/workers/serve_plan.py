"""What workers serve, as far as their supervisor has to know it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from adapter.settings.file.reading import ForkedRead, ReadSettings
from adapter.startup.failure import Obstacle
from adapter.state.lock_file import LockFile, StateLock


class ServePlan(NamedTuple):
    """The settings that a supervisor needs, and all of them, pickled, for workers (ReadSettings).

    ``grace`` is ``core.shutdown_grace_seconds``. ``programs``: programs of the same user run beside the workers.
    ``locked`` is the ``storage.root`` that only one adapter may use, "" where nobody looks; ``state`` the same of the
    state file. ``metrics``: workers count. ``watch``: the settings file is looked at. ``lasting`` has a digest for each
    key that only another worker can follow.
    """

    workers: int
    host: str
    port: int
    grace: float
    log_level: str
    programs: bool
    locked: str
    state: str
    settings: bytes
    metrics: bool = False
    watch: bool = False
    lasting: Mapping[str, str] = {}

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


def plan_of(read: ReadSettings, *, programs: bool) -> ServePlan:
    """The plan that the settings mean on this machine."""
    # Late: a supervisor does not load the classes of settings; the child that reads them has.
    from adapter.settings.changes import lasting_digests
    from adapter.settings.root import worker_count

    core, root = read.settings.core, read.settings.storage.root
    state = read.settings.state_file
    has_files = any(server.has_files for server in read.settings.servers)
    return ServePlan(
        worker_count(core.workers),
        core.host,
        core.port,
        core.shutdown_grace_seconds,
        core.log_level,
        programs,
        str(root.absolute()) if has_files and read.settings.root_lock == "exclusive" else "",
        "" if state is None else str(state.absolute()),
        pickle.dumps(read._replace(settings=read.settings.for_worker())),
        read.settings.telemetry.measures,
        core.watch,
        lasting_digests(read.settings),
    )


ReadPlan = Callable[[], ServePlan]
"""Reads a plan; raises PlanRefused."""


class PlanRefused(Exception):
    """The settings cannot be used. ``status`` is the exit status of a start that fails for that.

    ``sentence`` is empty where all has been said already. ``obstacles`` are the reasons one by one.
    """

    def __init__(self, sentence: str, status: int, obstacles: Sequence[Obstacle] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.status = status
        self.obstacles = tuple(obstacles)

    def __reduce__(self) -> tuple[type[PlanRefused], tuple[str, int, tuple[Obstacle, ...]]]:
        return PlanRefused, (self.sentence, self.status, self.obstacles)


def begin_reading(read: ReadPlan, prepare: Callable[[], None] | None = None) -> ForkedRead[ServePlan]:
    """Begin to read the plan in a child process, after ``prepare``. ``read`` may raise PlanRefused."""
    failure = PlanRefused("the process that reads the settings has failed", 1)
    return ForkedRead(read, PlanRefused, failure, prepare)


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
