"""The process that starts and ends the adapter's children, as the adapter sees it: always there when it is needed.

Orders go out over one socket, and news of the children come in.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamNotStarted
from adapter.upstream.stdio.orders import EXITED, FAILED, READY, STARTED, STEPS, signal_order, start_order
from adapter.wire.line_messages import LineReader, LongLine

OnExit = Callable[[int], None]
"""Is told once of the end of a child: its exit code, or the negative number of the signal that ended it."""

_ROOT = Path(__file__).parents[3]
_PROGRAM = (
    # Behind the standard library: beside this package there may be modules with names of its modules.
    "import sys; sys.path.append(sys.argv[1]); "
    "from adapter.upstream.stdio.supervisor_process import main; main()"
)
_LONGEST_LINE = 200
_PIECE = 65536
_ENDING_SECONDS = 5.0
"""Longest wait for the end of a supervisor, which kills what is left after one second."""


class StartRefused(Exception):
    """The system did not start a program. ``step`` is one of STEPS, ``error`` a number of ``errno``, 0 if unknown."""

    def __init__(self, step: str, error: int) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """Bytes to the supervisor, and descriptors that go with the first of them."""

    data: bytes
    descriptors: Sequence[int] = ()


class SupervisedProcess:
    """A process with its ``pid``, and the way to signal its group for as long as its supervisor lives."""

    def __init__(self, supervisor: Supervisor, number: int, on_exit: OnExit) -> None:
        self.pid = 0
        self.number = number
        self.on_exit = on_exit
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = supervisor

    def signal(self, which: signal.Signals) -> None:
        """Send a signal to its process group; nothing happens if it has ended."""
        self._supervisor.send(signal_order(self.number, which))


class Supervisor:
    """Starts the children of this adapter from one small process, which outlives the adapter to end them.

    One for the whole adapter. The process is started for the first child, and again if somebody kills it: on Linux
    the system then kills its children, and the new process ends what these had started.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._children: dict[int, SupervisedProcess] = {}
        self._last_number = 0
        self._orders: deque[_Order] = deque()
        # Of the process of now, from its start to its end.
        self._process: subprocess.Popen[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._socket: socket.socket
        self._lines: LineReader
        self._closing = False
        self._ready: asyncio.Future[int]
        self._lost: asyncio.Future[None]

    def __repr__(self) -> str:
        return f"<Supervisor: process {self.pid}, {len(self._children)} children>"

    @property
    def _is_alive(self) -> bool:
        """True until the end of the process was seen."""
        return self._process is not None and not self._lost.done()

    @property
    def pid(self) -> int | None:
        """The id of its process; None while there is none."""
        return self._process.pid if self._process is not None and self._is_alive else None

    async def open(self) -> None:
        """Start its process if there is none, which first ends the leftovers of adapters that were killed.

        Raises UpstreamNotStarted.
        """
        if self._is_alive and self._ready.done() and not self._closing:
            return
        async with self._opening:
            if not self._is_alive:
                await self._end()
                await self._begin()

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        descriptors: Sequence[int],
        on_exit: OnExit,
    ) -> SupervisedProcess:
        """Start a program and wait until it runs. The descriptors become its standard input, output and error, and are
        sent by then.

        ``on_exit`` is called when the process and its group have ended. Raises StartRefused, UpstreamNotStarted, and
        ValueError for a NUL character.
        """
        await self.open()
        self._last_number += 1
        child = SupervisedProcess(self, self._last_number, on_exit)
        order = start_order(child.number, argv, environment, cwd)
        self._children[child.number] = child
        self.send(order, descriptors)
        try:
            await child.started
        except asyncio.CancelledError:
            waiting = [each for each in self._orders if each.data is order]
            if waiting:
                self._orders.remove(waiting[0])
            # What was sent cannot be taken back, so it is ended at once and nobody is told.
            if self._children.pop(child.number, None) is not None and not waiting:
                child.signal(signal.SIGKILL)
            raise
        return child

    async def close(self) -> None:
        """End every child that is left, and the process. It may be opened again."""
        async with self._opening:
            await self._end()
        if self._reopening is not None:
            await asyncio.wait((self._reopening,))

    # --- the process ------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start the process, and wait until it takes orders. Raises UpstreamNotStarted."""
        try:
            self._connect()
        except OSError as error:
            raise UpstreamNotStarted(
                f"The process that starts servers cannot be started: {error.strerror}."
            ) from error
        try:
            leftovers = await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            await self._end()
            raise
        if not self._is_alive:
            await self._end()
            raise UpstreamNotStarted(
                "The process that starts servers ended at once; its error is on standard error."
            )
        if leftovers:
            self._log.warning("ended processes whose supervisor was killed", processes=leftovers)
        self._lost.add_done_callback(self._after_loss)

    def _connect(self) -> None:
        """Start the process at the other end of a socket. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _started(theirs)
            except BaseException:
                ours.close()
                raise
        self._loop, self._socket, self._lines = asyncio.get_running_loop(), ours, LineReader(_LONGEST_LINE)
        self._closing = False
        self._ready, self._lost = self._loop.create_future(), self._loop.create_future()
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._read)

    async def _end(self) -> None:
        """End every child and the process, and wait for that. Nothing happens if there is none."""
        if (process := self._process) is None:
            return
        if self._is_alive and not self._closing:
            self._closing = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await asyncio.shield(self._lost)
        except TimeoutError:
            self._log.error("the process that ends servers does not end, and is killed", pid=process.pid)
            process.kill()
            self._lose()
        # Its end of the socket is closed, or it was killed: it ends now.
        await asyncio.to_thread(process.wait)
        self._process = None

    def _after_loss(self, _lost: asyncio.Future[None]) -> None:
        """Start the process again at once if somebody killed it: it ends what its children have started."""
        if not self._closing:
            self._reopening = self._loop.create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            await self.open()
        except UpstreamNotStarted as error:
            self._log.error("no server can be started", reason=error.reason)

    # --- orders -----------------------------------------------------------------------------------------------

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send an order; nobody takes it if the process has ended."""
        if self._is_alive:
            self._orders.append(_Order(data, descriptors))
            if len(self._orders) == 1:
                self._flush()

    def _flush(self) -> None:
        """Write orders as far as the socket takes them."""
        try:
            while self._orders:
                order = self._orders.popleft()
                try:
                    sent = socket.send_fds(self._socket, [order.data], order.descriptors)
                except BlockingIOError:
                    self._orders.appendleft(order)
                    break
                if sent < len(order.data):
                    self._orders.appendleft(_Order(order.data[sent:]))
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                self._lose()
                return
            # So many descriptors are on their way that the system waits for the supervisor to take some.
            self._orders.appendleft(order)
        if self._orders:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._socket.fileno())

    # --- news -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        for line in self._lines.feed(piece):
            assert not isinstance(line, LongLine)
            word, *numbers = line.split()
            self._take(word, [int(each) for each in numbers])
        if not piece:
            self._lose()

    def _take(self, word: bytes, numbers: list[int]) -> None:
        if word == READY:
            self._ready.set_result(numbers[0])
            return
        child = self._children.get(numbers[0])
        if child is None:
            return
        if word == STARTED and not child.started.done():
            child.pid = numbers[1]
            child.started.set_result(None)
        elif word == FAILED:
            del self._children[numbers[0]]
            if not child.started.done():
                child.started.set_exception(StartRefused(STEPS[numbers[1]], numbers[2]))
        elif word == EXITED:
            del self._children[numbers[0]]
            child.on_exit(numbers[1])

    def _lose(self) -> None:
        """Take note that the process is gone, and that the system has killed its children."""
        if not self._is_alive:
            return
        pid, (children, self._children) = self.pid, (self._children, {})
        self._lost.set_result(None)
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._orders.clear()
        if not self._ready.done():
            self._ready.set_result(0)
        if not self._closing:
            self._log.error("the process that ends servers was ended", pid=pid, children=len(children))
        for child in children.values():
            if not child.started.done():
                child.started.set_exception(StartRefused("start", 0))
            else:
                child.on_exit(-signal.SIGKILL)


def _started(control: socket.socket) -> subprocess.Popen[bytes]:
    """Start the supervisor. The adapter's environment holds secrets, so it gets none of it.

    It leaves the adapter's session by itself (``supervisor_process.main``): this thread stands still until the program
    is loaded, and in a session of its own that would wait for a processor behind all others.
    """
    return subprocess.Popen(  # noqa: S603  (it is this very interpreter)
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_ROOT)],
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        cwd="/",
        env={},
    )
