"""A worker: what it is given at the fork, the words between it and its supervisor, and its work."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adapter.edge.http.seats import Seats
from adapter.startup.failure import Obstacle, StartFailed, encoded, obstacles_of
from adapter.workers.serve_plan import ServePlan

if TYPE_CHECKING:
    # A worker imports what serves after the fork.
    import asyncio

    from adapter.app.build import App
    from adapter.app.reload import SettingsReload
    from adapter.edge.http.listener import Grace, Listener
    from adapter.settings.file.reading import ReadSettings

READY = b"r"
"""A worker says this when it serves."""

FAILED = b"f"
"""A worker says this when it cannot serve; the reasons follow until the end of the channel."""

TELL_SECONDS = 2.0
"""Time for that."""

STOP = b"s"
"""Its supervisor says this to have it stop within the grace; so does the end of the channel."""

LEAVE = b"l"
"""The same, and there is no hurry, because another worker serves in its place."""

NEWS = b"n"
"""Its supervisor says this with the descriptor of a file: other settings (ReadSettings), or why there are none."""

TAKEN, REFUSED = b"t", b"x"
"""A worker says one of these when it serves by other settings, or cannot."""

LARGEST_NEWS = 2**30
"""Bytes of such a file."""

CUT = b"c"
"""Its supervisor says this to have it stop without grace."""


_NO_FOLDER = Obstacle(
    "the numbers of workers cannot be kept",
    "metrics of several workers need a folder for temporary files, and none can be written: free some room on the "
    "disk, or set TMPDIR to another folder",
    "telemetry",
)

LEAVING_IDLE_SECONDS = 5.0
"""Time without a request after which a worker that leaves closes a connection."""


class Assignment(NamedTuple):
    """The work of one worker.

    ``sockets`` are listening, ``seat`` is the worker's among ``seats``, and ``channel`` leads to its supervisor.
    ``first``: nobody else has reported what there is to report of the settings. ``metrics`` is the folder of the
    numbers of all workers, empty where nothing is counted.
    """

    number: int
    plan: ServePlan
    sockets: Sequence[socket.socket]
    seats: Seats
    seat: int
    channel: socket.socket
    first: bool
    metrics: str = ""


def become_worker(assignment: Assignment) -> int:
    """Serve until the supervisor says so or has gone. Returns the exit status of this process."""
    # As at every start: code is no garbage.
    gc.disable()
    from adapter import log
    from adapter.app.serve import failed_for, serve_under
    from adapter.settings.section import SettingsError

    log.identify(worker=assignment.number, pid=os.getpid())
    if assignment.plan.metrics and not assignment.metrics:
        _tell(assignment.channel, failed_for(_NO_FOLDER))
        return 1
    if assignment.metrics:
        _keep_numbers(assignment.metrics, assignment.seat)
    read: ReadSettings = pickle.loads(assignment.plan.settings)  # noqa: S301 - this program's own, from its memory
    try:
        return serve_under(read.settings, read.cautions if assignment.first else None, Supervised(assignment))
    except StartFailed as failed:
        _tell(assignment.channel, failed)
    except SettingsError as refused:
        _tell(assignment.channel, failed_for(*obstacles_of(refused.problems)))
    return 1


def _tell(channel: socket.socket, failed: StartFailed) -> None:
    """Tell the supervisor why the start failed; it has nobody to wait for."""
    with contextlib.suppress(OSError):
        channel.setblocking(True)
        channel.settimeout(TELL_SECONDS)
        channel.sendall(FAILED + encoded(failed.obstacles))


def _keep_numbers(folder: str, seat: int) -> None:
    # Late: it loads the library of metrics.
    from adapter import log
    from adapter.telemetry.metric_registry import keep_in_files

    try:
        keep_in_files(Path(folder), seat)
    except OSError as error:
        # Serving goes on: a full disk is no reason to refuse calls.
        logger = log.get_logger("adapter")
        logger.warning("scrapes lack the metrics of this worker", folder=folder, why=error.strerror)


class Supervised:
    """The owner of a worker's process: it listens where all workers do, and stops when its supervisor says so.

    A signal to the whole group of processes is the supervisor's affair. SIGTERM to a worker alone stops it, and the
    supervisor puts another in its place.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._stop: Callable[[], None]
        self._grace: Grace
        self._news: asyncio.Queue[ReadSettings | str]

    def attend(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], grace: Grace) -> None:
        """Call ``stop`` when the worker is to stop, and cut the ``grace`` when it is to do so at once."""
        import asyncio

        self._stop, self._grace, self._news = stop, grace, asyncio.Queue()
        loop.add_signal_handler(signal.SIGTERM, stop)
        for number in (signal.SIGINT, signal.SIGHUP):
            # Not ignored: programs that are started would ignore it too.
            loop.add_signal_handler(number, _pass_over)
        self._assignment.channel.setblocking(False)
        loop.add_reader(self._assignment.channel.fileno(), self._hear, loop)

    def _hear(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            words, files, _, _ = socket.recv_fds(self._assignment.channel, 64, 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            words, files = b"", []
        for file in files:
            self._news.put_nowait(_news_in(file))
        if words and not words.strip(NEWS):
            return
        if not words:
            loop.remove_reader(self._assignment.channel.fileno())
        if LEAVE in words:
            self._grace.idle_seconds = LEAVING_IDLE_SECONDS
        if CUT in words:
            self._grace.cut()
        self._stop()

    async def listen(self, app: App) -> Listener:
        """Accept connections from the port of all workers."""
        from adapter.app.run import join_port
        from adapter.edge.http.shared_sockets import SharedSockets

        each = self._assignment
        return join_port(app, SharedSockets(each.sockets, each.seats, each.seat))

    def serving(self) -> None:
        """Say that the worker serves."""
        with contextlib.suppress(OSError):
            self._assignment.channel.send(READY)

    async def follow(self, reload: SettingsReload) -> None:
        """Serve by the settings that the supervisor gives out, and answer."""
        while True:
            news = await self._news.get()
            reload.reopen()
            if isinstance(news, str):
                reload.refuse(news)
                continue
            taken = await reload.apply(news.settings)
            with contextlib.suppress(OSError):
                self._assignment.channel.send(TAKEN if taken else REFUSED)

    def stopping(self) -> None:
        """The supervisor has asked for it, or will notice."""


def _news_in(file: int) -> ReadSettings | str:
    """Read the news in a file and close it. Others may read it at the same time."""
    try:
        news: ReadSettings | str = pickle.loads(  # noqa: S301 - this program's own, from its memory
            os.pread(file, min(os.fstat(file).st_size, LARGEST_NEWS), 0)
        )
    finally:
        os.close(file)
    return news


def _pass_over() -> None:
    return None
