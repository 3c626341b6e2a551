"""The processes of workers: each is forked, told to stop, killed if it does not, and its end is noticed. Signals to
their supervisor, as numbers that a selector waits for.

The places of workers, and what is under way to put others into them or to have them serve by other settings.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO, NoReturn

from adapter.edge.http.seats import EMPTY, SEATS, Seats
from adapter.startup.failure import Obstacle, decoded
from adapter.workers.serve_plan import ServePlan
from adapter.workers.worker import (
    CUT,
    FAILED,
    LEAVE,
    NEWS,
    READY,
    REFUSED,
    STOP,
    TAKEN,
    Assignment,
    become_worker,
)

BEGAN = "began"
"""A file in it, as old as the numbers are. ``adapter/telemetry/metric_registry.py`` reads it."""

_GAUGES = ("livesum", "livemax")


class MetricFiles:
    """A folder that only this user may read, from the start to ``close``; what workers counted in it is the
    supervisor's, so it outlives each of them.
    """

    def __init__(self) -> None:
        # Late: few count, and a supervisor is to stay small.
        import tempfile

        self.folder = Path(tempfile.mkdtemp(prefix="mcp-adapter-metrics-"))
        (self.folder / BEGAN).touch()

    def __repr__(self) -> str:
        return f"<MetricFiles in {self.folder}>"

    def left(self, seat: int) -> None:
        """Drop the gauges of a worker that has ended; what it counted stays."""
        for kind in _GAUGES:
            with contextlib.suppress(OSError):
                (self.folder / f"gauge_{kind}_{seat}.db").unlink(missing_ok=True)

    def close(self) -> None:
        """Delete the folder. Never raises."""
        import shutil

        shutil.rmtree(self.folder, ignore_errors=True)


START_SECONDS = 120.0
"""Time that a worker gets until it serves."""

STOP_SECONDS = 20.0
"""Time beyond the grace that a worker gets to close what it has open."""


LONGEST_WORDS = 2**16
"""Bytes that a worker may say; more is not listened to."""


class WorkerProcess:
    """A worker, as its supervisor sees it. Times are those of a clock that never goes back, in seconds.

    ``ready_at`` is None until it serves. After ``kill_at`` it is killed. ``silent``: it has closed its channel, so that
    nothing more will be heard of it but its end.
    """

    def __init__(self, number: int, seat: int, pid: int, channel: socket.socket, began: float) -> None:
        self.number = number
        self.seat = seat
        self.pid = pid
        self.channel = channel
        self.ready_at: float | None = None
        self.kill_at: float | None = began + START_SECONDS
        self.stopping = False
        self.silent = False
        self.took_settings: bool | None = None
        """The last answer to other settings; None where there is none."""
        self._failure = b""

    def __repr__(self) -> str:
        state = "stopping" if self.stopping else "starting" if self.ready_at is None else "serving"
        return f"<WorkerProcess {self.number}: {self.pid}, {state}>"

    def heard(self, now: float) -> bool:
        """Read what the worker has to say. Returns True when it says for the first time that it serves."""
        try:
            words = self.channel.recv(LONGEST_WORDS)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            words = b""
        self.silent = not words
        if self._failure or words.startswith(FAILED):
            self._failure += words[: LONGEST_WORDS - len(self._failure)]
            return False
        if TAKEN in words or REFUSED in words:
            self.took_settings = REFUSED not in words
        if READY not in words or self.ready_at is not None:
            return False
        self.ready_at = now
        if not self.stopping:
            self.kill_at = None
        return True

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """The reasons that the worker has given for its end, if it could not serve."""
        return decoded(self._failure.removeprefix(FAILED)) if self._failure else ()

    def stop(self, kill_at: float, *, replaced: bool = False) -> None:
        """Ask it to stop, and let it live until ``kill_at`` at most. ``replaced``: another serves in its place."""
        self._tell(LEAVE if replaced else STOP)
        self.stopping = True
        self.kill_at = kill_at

    def give(self, news: int) -> bool:
        """Tell it of other settings, or why there are none: the file with this descriptor has them. Returns False if
        it will not hear of it.
        """
        self.took_settings = None
        try:
            socket.send_fds(self.channel, [NEWS], [news])
        except OSError:
            return False  # it is ending, and its end will be noticed
        return not self.stopping

    def cut(self, kill_at: float) -> None:
        """Ask it to stop without waiting for requests under way."""
        self._tell(CUT)
        self.stopping = True
        self.kill_at = kill_at

    def kill(self) -> None:
        self.kill_at = None
        # It is not reaped before its end is noticed here, so the number is nobody else's.
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of the channel of a worker that has ended."""
        self.channel.close()

    def _tell(self, word: bytes) -> None:
        try:
            self.channel.send(word)
        except OSError:
            return  # it is ending, and its end will be noticed


class Fleet:
    """All workers that run.

    ``forget`` closes in a child what it has of the supervisor's besides, and ``keep_locks`` lets go in a worker of the
    locks of all plans but its own: it would hold them after the last worker of another plan has ended.
    """

    def __init__(self, forget: Callable[[], None], keep_locks: Callable[[ServePlan], None]) -> None:
        self.seats = Seats()
        self.metrics: MetricFiles | None = None
        """The numbers of all workers, as soon as one counts."""
        self._forget = forget
        self._keep_locks = keep_locks
        self._workers: dict[int, WorkerProcess] = {}

    def __repr__(self) -> str:
        return f"<Fleet: {[*self._workers.values()]}>"

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter([*self._workers.values()])

    def __len__(self) -> int:
        return len(self._workers)

    def begin(
        self, number: int, plan: ServePlan, sockets: Sequence[socket.socket], now: float, *, first: bool
    ) -> WorkerProcess:
        """Start a worker. The ``first`` of all reports what the settings give reason to warn of."""
        seat = next(each for each in range(SEATS) if each not in {worker.seat for worker in self})
        folder = self._metric_folder() if plan.metrics else ""
        own, its = socket.socketpair()
        own.setblocking(False)
        # A signal that comes between the fork and the worker's own handlers is the worker's alone.
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            pid = os.fork()
            if pid == 0:
                own.close()
                self.forget_all()
                self._keep_locks(plan)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
                work = Assignment(number, plan, sockets, self.seats, seat, its, first, folder)
                _end_as(lambda: become_worker(work))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        its.close()
        worker = self._workers[pid] = WorkerProcess(number, seat, pid, own, now)
        return worker

    def _metric_folder(self) -> str:
        """The folder of the numbers; empty where none can be made, of which the worker tells."""
        if self.metrics is None:
            try:
                self.metrics = MetricFiles()
            except OSError:
                return ""
        return str(self.metrics.folder)

    def forget_all(self) -> None:
        """Close what belongs to the supervisor, in a child of it: a worker learns of the supervisor's end by the end of
        its channel, which nobody else may hold open.
        """
        for worker in self:
            worker.close()
        self._forget()

    def ended(self) -> list[tuple[WorkerProcess, int]]:
        """The workers that have ended since the last time, with their exit status, below 0 for a signal.

        In a container this process is the parent of all that have lost theirs, so it reaps what is no worker too.
        """
        found = []
        while (ended := _reaped()) is not None:
            pid, status = ended
            worker = self._workers.pop(pid, None)
            if worker is not None:
                found.append((worker, os.waitstatus_to_exitcode(status)))
                self.seats.put(worker.seat, EMPTY)
                if self.metrics is not None:
                    self.metrics.left(worker.seat)
        return found

    def overdue(self, now: float) -> list[WorkerProcess]:
        """Kill the workers whose time is over, and return them."""
        late = [each for each in self if each.kill_at is not None and each.kill_at <= now]
        for worker in late:
            worker.kill()
        return late

    def close(self) -> None:
        """Let go of what all workers had in common; none of them runs any more."""
        if self.metrics is not None:
            self.metrics.close()

    @property
    def next_deadline(self) -> float | None:
        """The time at which a worker will be overdue."""
        return min((each.kill_at for each in self if each.kill_at is not None), default=None)


def _reaped() -> tuple[int, int] | None:
    """A child that has ended, and its status; None if there is none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _end_as(work: Callable[[], int]) -> NoReturn:
    """Do the work of this process, and end it without what the supervisor does at its own end."""
    status = 1
    try:
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        os._exit(status)


def close_all(sockets: Sequence[socket.socket]) -> None:
    """Close sockets that are of no use here any more."""
    for each in sockets:
        each.close()


def news_file(news: object) -> BinaryIO:
    """A file without a name that holds other settings, pickled, or a text that says why there are none."""
    found: BinaryIO
    if hasattr(os, "memfd_create"):
        found = os.fdopen(os.memfd_create("settings", os.MFD_CLOEXEC), "w+b")
    else:
        # Late: it is for other systems.
        import tempfile

        found = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by whoever asked for it
    found.write(news if isinstance(news, bytes) else pickle.dumps(news))
    found.flush()
    return found


# --- signals ----------------------------------------------------------------------------------------------------

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class SignalInbox:
    """The watched signals from ``__enter__`` to ``__exit__``; they do nothing by themselves."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def __enter__(self) -> SignalInbox:
        self._before = {number: signal.signal(number, _noted) for number in WATCHED}
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.close()

    def fileno(self) -> int:
        """A descriptor that can be read when a signal has come."""
        return self._reader.fileno()

    def take(self) -> list[int]:
        """The signals that have come since the last time."""
        try:
            return list(self._reader.recv(4096))
        except BlockingIOError:
            return []

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def forget(self) -> None:
        """Leave the signals of a child to itself: those that a terminal sends to all end nobody before it listens."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self.close()


def _noted(_: int, __: FrameType | None) -> None:
    """Be called by a signal that the inbox has taken."""


STEADY_SECONDS = 10.0
"""Time that a worker serves after which its end has nothing to do with its start."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before a worker is started again that has ended twice in a row; each time twice as long."""

MOST_FAILED_STARTS = 3
"""Workers in a row that may end before they serve, while no other serves; then the supervisor gives up."""

HANDOVER_SECONDS = 60.0
"""Time that workers get to serve by other settings; one that is later is replaced, as all are then."""


def delay_after(failures: int) -> float:
    """Seconds to wait after so many ends in a row; the first costs nothing."""
    return 0.0 if failures < 2 else float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures - 2, 30)))


@dataclass
class WorkerSlot:
    """The place of one worker. ``failures`` are its ends in a row, each soon after it had begun."""

    worker: WorkerProcess | None = None
    failures: int = 0
    not_before: float = 0.0

    def ended(self, now: float, lived: float) -> None:
        """Note that the worker has ended, which has served for ``lived`` seconds."""
        self.failures = 1 if lived >= STEADY_SECONDS else self.failures + 1
        self.not_before = now + delay_after(self.failures)


class SettingsHandover:
    """The hand-over of other settings to workers, of which ``waits`` are to answer until ``not_after``.

    ``before`` is the plan that was served before.
    """

    def __init__(self, before: ServePlan, waits: set[WorkerProcess], not_after: float) -> None:
        self.before = before
        self.waits = waits
        self.not_after = not_after

    def __repr__(self) -> str:
        return f"<SettingsHandover: {len(self.waits)} workers to answer>"


MOST_FAILURES = 5
"""New workers in a row that may end before they serve; then the others stay as they are."""


class WorkerReplacement:
    """A replacement under way, of workers by others that serve ``plan`` from ``sockets``.

    ``incoming`` is the new worker that does not serve yet, and ``leaving`` the old one that has not ended yet.
    ``taken``: a new worker has served, so the plan can be served.
    """

    def __init__(self, plan: ServePlan, sockets: Sequence[socket.socket]) -> None:
        self.plan = plan
        self.sockets = sockets
        self.numbers = deque(range(1, plan.workers + 1))
        self.incoming: WorkerProcess | None = None
        self.leaving: WorkerProcess | None = None
        self.taken = False
        self.failures = 0
        self.not_before = 0.0

    def __repr__(self) -> str:
        return f"<WorkerReplacement: {len(self.numbers)} workers to go, {self.incoming} for {self.leaving}>"

    @property
    def waits(self) -> bool:
        """True while a worker is on its way in or out."""
        return self.incoming is not None or self.leaving is not None

    def failed(self, now: float, delay: float) -> bool:
        """Note that the new worker has ended. Returns False if no other is to be tried.

        A plan that nobody could serve yet is given up at once; later failures have another reason, which may pass.
        """
        assert self.incoming is not None, "only the new worker fails"
        self.numbers.appendleft(self.incoming.number)
        self.incoming = None
        self.failures += 1
        self.not_before = now + delay
        return self.taken and self.failures < MOST_FAILURES
