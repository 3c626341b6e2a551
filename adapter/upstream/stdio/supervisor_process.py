"""The process that starts the children of one adapter, and ends them when the adapter is gone.

It takes the orders of ``orders.py`` from a Unix socket, its standard input. It has one thread and needs the standard
library only. While no order comes and no child ends, it sleeps.

Each child leads a session and a process group of its own. When it ends, for whatever reason, the rest of its group gets
TERM, and KILL a second later; so does every child when the socket ends, because the adapter closed it or died. On Linux
also: a child is killed by the kernel when this process dies, and processes that left the group of their child are found
(this process becomes the parent of all that lose theirs) and end with it. Elsewhere the group is all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from adapter.upstream.stdio import process_table
from adapter.upstream.stdio.orders import (
    DESCRIPTORS,
    EXITED,
    FAILED,
    HEAD,
    READY,
    SIGNAL,
    START,
    STARTED,
    STEPS,
    read_start,
)

TERM_SECONDS = 1.0
"""Time between TERM and KILL for what is left of a child or of all of them."""

KILL_SECONDS = 1.5
"""Longest wait for processes after KILL; the system ends them at once unless they are stuck in a device."""

_POLLED_SECONDS = 0.05
"""Time between two looks at a group of which this process is not told, because it is not the parent."""

_DEFAULTED = (
    *(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD),
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
)
"""Signals that Python, this process or whoever started it may ignore. An ignored signal stays ignored after exec."""


class _Child:
    """A process that was started, and then what it left.

    ``failures`` is the pipe that tells that its program could not be run, -1 once that is known. ``status`` is None
    while it runs. From ``kill_at`` on whatever is left is killed. ``termed`` has the targets that got TERM.
    """

    def __init__(self, number: int, pid: int, failures: int) -> None:
        self.number = number
        self.pid = pid
        self.failures = failures
        self.status: int | None = None
        self.kill_at = float("inf")
        self.termed: set[int] = set()

    @property
    def group(self) -> int:
        """Its process group as a target of kill(2)."""
        return -self.pid

    def send(self, target: int, number: int) -> None:
        """Send a signal to a process or group of this child, TERM only once: a second one often means haste."""
        if number == signal.SIGTERM and target in self.termed:
            return
        self.termed.add(target)
        if target == self.group and self.status is None and not process_table.group_exists(self.pid):
            # It has only just been forked and has no group yet.
            target = self.pid
        process_table.send_signal(target, number)


class SupervisorProcess:
    """The children by their process ids, and the socket to the adapter."""

    def __init__(self, adapter: socket.socket) -> None:
        self._adapter = adapter
        self._pid = os.getpid()
        self._identity = process_table.identity()
        self._prctl = process_table.prctl()
        self._prctl(process_table.PR_SET_CHILD_SUBREAPER, 1)
        self._children: dict[int, _Child] = {}
        self._connected = True
        self._poll = select.poll()
        self._actions: dict[int, Callable[[], None]] = {}
        self._wake, wake = os.pipe()
        for descriptor in (self._wake, wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._watch(self._wake, self._drain)
        self._watch(adapter.fileno(), self._take_order)

    def run(self) -> None:
        """Follow orders until the adapter is gone, then end everything."""
        self._say(READY, process_table.end_leftovers())
        while self._connected:
            self._turn(None)
        self._signal_all(signal.SIGTERM)
        kill_at = time.monotonic() + TERM_SECONDS
        while (left := kill_at - time.monotonic()) > 0 and self._has_any():
            self._turn(left)
        while (left := kill_at + KILL_SECONDS - time.monotonic()) > 0 and self._has_any():
            # Each time, because those whose parents have just died are known only now.
            self._signal_all(signal.SIGKILL)
            self._turn(left)

    def _has_any(self) -> bool:
        """Tell whether any process is left that must end."""
        return process_table.has_children() if sys.platform == "linux" else bool(self._children)

    def _turn(self, seconds: float | None) -> None:
        """Wait for something to happen, at most so long, and do what follows from it."""
        limits = [seconds, self._due()]
        least = min((each for each in limits if each is not None), default=None)
        for descriptor, _ in self._poll.poll(None if least is None else least * 1000 + 1):
            if descriptor in self._actions:
                self._actions[descriptor]()
        self._reap()

    def _due(self) -> float | None:
        """Seconds until something is to be done for a child that has ended; None if there is none."""
        ended = [child.kill_at for child in self._children.values() if child.status is not None]
        if not ended:
            return None
        if sys.platform != "linux":
            return _POLLED_SECONDS
        now = time.monotonic()
        return min((at if at > now else max(now, at + KILL_SECONDS)) - now for at in ended)

    def _watch(self, descriptor: int, action: Callable[[], None]) -> None:
        self._actions[descriptor] = action
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        del self._actions[descriptor]
        self._poll.unregister(descriptor)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass

    # --- what the adapter orders ------------------------------------------------------------------------------

    def _take_order(self) -> None:
        descriptors: list[int] = []
        try:
            head, descriptors, _, _ = socket.recv_fds(self._adapter, HEAD, DESCRIPTORS)
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            head += self._received(HEAD - len(head))
            fields = self._received(int.from_bytes(head, "big")).split(b"\0")
        except OSError:
            self._disconnect(descriptors)
            return
        if fields[0] == START:
            self._start(*read_start(fields), descriptors)
        elif fields[0] == SIGNAL:
            self._signal(int(fields[1]), int(fields[2]))

    def _received(self, size: int) -> bytes:
        """Receive exactly so many bytes. Raises ConnectionResetError if the stream ends before."""
        data = bytearray()
        while len(data) < size:
            piece = self._adapter.recv(size - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)

    def _disconnect(self, descriptors: list[int]) -> None:
        self._connected = False
        self._unwatch(self._adapter.fileno())
        for descriptor in descriptors:
            os.close(descriptor)

    def _say(self, word: bytes, *numbers: int) -> None:
        # The adapter may be gone; then the socket's end says so.
        with contextlib.suppress(OSError):
            self._adapter.sendall(b" ".join((word, *(b"%d" % number for number in numbers))) + b"\n")

    # --- start ------------------------------------------------------------------------------------------------

    def _start(
        self, number: int, argv: list[bytes], variables: list[bytes], cwd: bytes, descriptors: list[int]
    ) -> None:
        ends: tuple[int, ...] = ()
        try:
            if len(descriptors) != DESCRIPTORS:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            failures, failed = ends = os.pipe()
            pid = os.fork()
        except OSError as error:
            for descriptor in (*descriptors, *ends):
                os.close(descriptor)
            self._say(FAILED, number, STEPS.index("start"), error.errno or 0)
        else:
            if pid == 0:
                mark = f"{process_table.MARK}={self._identity}/{number}".encode()
                self._become(argv, [*variables, mark], cwd, descriptors, failed)
            self._children[pid] = _Child(number, pid, failures)
            self._watch(failures, lambda: self._settle(self._children[pid]))
            for descriptor in (*descriptors, failed):
                os.close(descriptor)

    def _become(
        self, argv: list[bytes], variables: list[bytes], cwd: bytes, descriptors: list[int], failed: int
    ) -> None:
        """Turn this new process into the program. Never returns."""
        step = STEPS.index("start")
        try:
            self._separate(descriptors)
            step = STEPS.index("cwd")
            os.chdir(cwd)
            step = STEPS.index("command")
            environment = dict(each.split(b"=", 1) for each in variables)
            os.execvpe(argv[0], argv, environment)  # noqa: S606  (no shell is wanted)
        except Exception as error:
            os.write(failed, b"%d %d" % (step, getattr(error, "errno", None) or 0))
        finally:
            os._exit(127)

    def _separate(self, descriptors: list[int]) -> None:
        """Leave the supervisor's session, signals and descriptors; all of these close themselves but the three."""
        os.setsid()
        self._prctl(process_table.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            # It died before that: nobody would be told of this one.
            os._exit(127)
        signal.set_wakeup_fd(-1)
        for each in _DEFAULTED:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)

    def _settle(self, child: _Child) -> None:
        """Tell the adapter whether the program runs: the pipe ends when it does, and says why when it does not."""
        failure = os.read(child.failures, 100)
        self._unwatch(child.failures)
        os.close(child.failures)
        child.failures = -1
        if failure:
            self._say(FAILED, child.number, *map(int, failure.split()))
        else:
            self._say(STARTED, child.number, child.pid)

    # --- end --------------------------------------------------------------------------------------------------

    def _signal(self, number: int, signal_number: int) -> None:
        for child in self._children.values():
            if child.number == number:
                if signal_number == signal.SIGKILL:
                    child.kill_at = time.monotonic()
                child.send(child.group, signal_number)

    def _signal_all(self, signal_number: int) -> None:
        for child in self._children.values():
            child.send(child.group, signal_number)
        for pid in process_table.child_ids():
            if pid not in self._children:
                process_table.send_signal(pid, signal_number)

    def _reap(self) -> None:
        """Take note of every process that has ended, and end what is left of its child.

        The number of a group is not given away while anything is in it, and each end in it is seen here at once.
        """
        any_ended = False
        while found := process_table.ended_process():
            any_ended = True
            pid, status = found
            child = self._children.get(pid)
            if child is not None and child.failures >= 0:
                self._settle(child)
            if status is None:
                status = os.waitpid(pid, 0)[1]
            if child is not None and child.status is None:
                child.status = os.waitstatus_to_exitcode(status)
                child.kill_at = min(child.kill_at, time.monotonic() + TERM_SECONDS)
        if any_ended or self._due() is not None:
            self._end_families()

    def _end_families(self) -> None:
        """Signal what is left of children that have ended; tell the adapter of those of which nothing is left."""
        now = time.monotonic()
        strays = self._strays()
        for child in list(self._children.values()):
            left = strays.pop(child.number, [])
            if child.status is None:
                continue
            if not (left or process_table.group_exists(child.pid)) or now >= child.kill_at + KILL_SECONDS:
                del self._children[child.pid]
                self._say(EXITED, child.number, child.status)
                continue
            for target in (child.group, *left):
                child.send(target, signal.SIGKILL if now >= child.kill_at else signal.SIGTERM)
        for pid in (pid for left in strays.values() for pid in left):
            process_table.send_signal(pid, signal.SIGKILL)

    def _strays(self) -> dict[int, list[int]]:
        """Find processes that left the group of their child and lost their parents, by the number of the child."""
        strays: dict[int, list[int]] = {}
        for pid in process_table.child_ids():
            # Groups include leaders that run, and what leaders that have ended left in theirs.
            if process_table.group_of(pid) not in self._children:
                supervisor, number = process_table.mark_of(pid) or ("", 0)
                if supervisor == self._identity:
                    strays.setdefault(number, []).append(pid)
        return strays


def main() -> None:
    """Begin a session, take the socket from standard input, which children must not inherit, and run."""
    os.setsid()
    adapter = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Service managers signal every process of a service: this one is still needed, and ends with the adapter.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    SupervisorProcess(adapter).run()
