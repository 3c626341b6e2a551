"""The connection to one supervisor process: orders go out, news of its children come in."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from adapter.upstream.stdio.orders import EXITED, FAILED, READY, STARTED, STEPS, signal_order
from adapter.wire.lines import LineReader, LongLine

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
    """Bytes to the supervisor, and descriptors that go with the first of them and are closed then."""

    data: bytes
    descriptors: Sequence[int] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Supervised:
    """A child: the future of its process id, and the receiver of its end."""

    pid: asyncio.Future[int]
    on_exit: OnExit


class SupervisorLink:
    """A supervisor process from its start to its end. When it ends, so have all of its children."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        """Start the process. Raises OSError."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._children: dict[int, _Supervised] = {}
        self._last_number = 0
        self._orders: deque[_Order] = deque()
        self._lines = LineReader(_LONGEST_LINE)
        self._closing = False
        self.ready: asyncio.Future[int] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _started(theirs)
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._read)

    @property
    def alive(self) -> bool:
        """True until the end of the process was seen."""
        return not self.lost.done()

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        return self._process.pid

    @property
    def count(self) -> int:
        """Number of its children."""
        return len(self._children)

    def next_number(self) -> int:
        """Return a number for a child."""
        self._last_number += 1
        return self._last_number

    async def start(self, number: int, order: bytes, descriptors: Sequence[int], on_exit: OnExit) -> int:
        """Send an order to start a child, close the descriptors, and wait for its process id. Raises StartRefused."""
        if not self.alive:
            _close(descriptors)
            raise StartRefused("start", 0)
        child = _Supervised(self._loop.create_future(), on_exit)
        self._children[number] = child
        self._send(_Order(order, descriptors))
        try:
            return await child.pid
        except asyncio.CancelledError:
            # Its start cannot be taken back, so it is ended at once and nobody is told.
            if self._children.pop(number, None) is not None:
                self.signal(number, signal.SIGKILL)
            raise

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to the group of a child."""
        self._send(_Order(signal_order(number, which)))

    async def close(self) -> None:
        """End every child and the process, and wait for that. Idempotent."""
        if self.alive and not self._closing:
            self._closing = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await asyncio.shield(self.lost)
        except TimeoutError:
            self._log.error("the process that ends servers does not end, and is killed", pid=self.pid)
            self._process.kill()
            self._lose()
        # Its end of the socket is closed, or it was killed: it ends now.
        await asyncio.to_thread(self._process.wait)

    # --- orders -----------------------------------------------------------------------------------------------

    def _send(self, order: _Order) -> None:
        self._orders.append(order)
        if self.alive and len(self._orders) == 1:
            self._flush()
        elif not self.alive:
            self._drop_orders()

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
                _close(order.descriptors)
                if sent < len(order.data):
                    self._orders.appendleft(_Order(order.data[sent:]))
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                _close(order.descriptors)
                self._lose()
                return
            # So many descriptors are on their way that the system waits for the supervisor to take some.
            self._orders.appendleft(order)
        if self._orders:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _drop_orders(self) -> None:
        while self._orders:
            _close(self._orders.popleft().descriptors)

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
            self.ready.set_result(numbers[0])
            return
        child = self._children.get(numbers[0])
        if child is None:
            return
        if word == STARTED and not child.pid.done():
            child.pid.set_result(numbers[1])
        elif word == FAILED:
            del self._children[numbers[0]]
            if not child.pid.done():
                child.pid.set_exception(StartRefused(STEPS[numbers[1]], numbers[2]))
        elif word == EXITED:
            del self._children[numbers[0]]
            child.on_exit(numbers[1])

    def _lose(self) -> None:
        """Take note that the process is gone, and that the system has killed its children."""
        if not self.alive:
            return
        self.lost.set_result(None)
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._drop_orders()
        if not self.ready.done():
            self.ready.set_result(0)
        if not self._closing:
            self._log.error("the process that ends servers was ended", pid=self.pid, children=self.count)
        children, self._children = self._children, {}
        for child in children.values():
            if not child.pid.done():
                child.pid.set_exception(StartRefused("start", 0))
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


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
