"""The process that starts the children of one adapter, and ends them when the adapter is gone.

``python -S -P -m adapter.upstream.stdio.supervisor_process`` with a Unix socket as standard input takes the orders of
``orders.py``. It has one thread and needs the standard library only. While no order comes and no child ends, it sleeps.

Each child leads a session and a process group of its own. When it ends, for whatever reason, the rest of its group is
killed. When the socket ends, because the adapter closed it or died, every child gets TERM, and KILL a second later. On
Linux also: a child is killed by the kernel when this process dies, and processes that left the group of their child
are found (this process becomes the parent of all that lose theirs) and killed with it. Elsewhere the group is all.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from adapter.upstream.stdio import leftovers
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
"""Time between TERM and KILL when the adapter is gone."""

KILL_SECONDS = 1.5
"""Longest wait for processes after KILL; the system ends them at once unless they are stuck in a device."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""linux/prctl.h."""

_DEFAULTED = (
    *(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD),
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
)
"""Signals that Python, this process or whoever started it may ignore. An ignored signal stays ignored after exec."""


class _Child:
    """A process that was started: ``failures`` is the pipe that tells that its program could not be run."""

    def __init__(self, number: int, pid: int, failures: int) -> None:
        self.number = number
        self.pid = pid
        self.failures = failures
        self.status: int | None = None
        self.deadline = 0.0


class SupervisorProcess:
    """The children by their process ids, and the socket to the adapter."""

    def __init__(self, adapter: socket.socket) -> None:
        self._adapter = adapter
        self._identity = leftovers.identity()
        self._prctl = _prctl()
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1)
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
        self._say(READY, leftovers.end_leftovers())
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
        return bool(self._children or _own_children())

    def _turn(self, seconds: float | None) -> None:
        """Wait for something to happen, at most so long, and do what follows from it."""
        ended = [child.deadline for child in self._children.values() if child.status is not None]
        if ended:
            left = max(0.0, min(ended) - time.monotonic())
            seconds = left if seconds is None else min(seconds, left)
        for descriptor, _ in self._poll.poll(None if seconds is None else seconds * 1000 + 1):
            if descriptor in self._actions:
                self._actions[descriptor]()
        self._reap()

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
        failures, failed = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(failures)
            self._say(FAILED, number, STEPS.index("start"), error.errno or 0)
        else:
            if pid == 0:
                mark = f"{leftovers.MARK}={self._identity}/{number}".encode()
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
        parent = os.getppid()
        os.setsid()
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
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
            if child.number == number and child.status is None:
                _signal_group(child.pid, signal_number)

    def _signal_all(self, signal_number: int) -> None:
        for pid, child in self._children.items():
            if child.status is None:
                _signal_group(pid, signal_number)
        for pid in _own_children():
            if pid not in self._children:
                _signal_process(pid, signal_number)

    def _reap(self) -> None:
        """Take note of every process that ended, and end what was left of its child."""
        ended = False
        while pid := _ended_child():
            ended = True
            child = self._children.get(pid)
            if child is not None:
                if child.failures >= 0:
                    self._settle(child)
                # Before it is reaped: until then no other process can get this number.
                _signal_group(pid, signal.SIGKILL)
            status = _reaped(pid)
            if child is not None:
                child.status, child.deadline = status, time.monotonic() + KILL_SECONDS
        if ended:
            self._kill_strays()
        self._report()

    def _kill_strays(self) -> None:
        """Kill processes that left the group of their child, lost their parents, and whose child has ended."""
        running = {child.number for child in self._children.values() if child.status is None}
        for pid in _own_children():
            if pid in self._children and self._children[pid].status is None:
                continue
            mark = leftovers.mark_of(pid)
            if mark is not None and mark[0] == self._identity and mark[1] not in running:
                _signal_process(pid, signal.SIGKILL)

    def _report(self) -> None:
        """Tell the adapter of the children that have ended with all of their group."""
        now = time.monotonic()
        for child in [each for each in self._children.values() if each.status is not None]:
            if child.deadline <= now or not _group_exists(child.pid):
                del self._children[child.pid]
                assert child.status is not None
                self._say(EXITED, child.number, child.status)


def _prctl() -> Callable[[int, int], object]:
    """The system call of that name on Linux; elsewhere a function that does nothing."""
    if sys.platform != "linux":
        return lambda _option, _value: None
    import ctypes

    call = ctypes.CDLL(None).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


def _ended_child() -> int:
    """The id of a process that has ended and waits to be reaped; 0 if there is none."""
    try:
        if sys.platform == "linux":
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return found.si_pid if found is not None else 0
        # Without waitid it is reaped at once, and its status is kept.
        pid, _statuses[0] = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0
    else:
        return pid


_statuses = [0]


def _reaped(pid: int) -> int:
    """Reap a process that ``_ended_child`` found. Returns its exit code, or the negative number of a signal."""
    status = os.waitpid(pid, 0)[1] if sys.platform == "linux" else _statuses[0]
    return os.waitstatus_to_exitcode(status)


def _own_children() -> list[int]:
    """The processes whose parent is this one; on systems without ``/proc`` none are known."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123  (see leftovers.py)
            return [int(each) for each in file.read().split()]
    except OSError:
        return [pid for pid, supervisor, _ in leftovers.marked() if supervisor == leftovers.identity()]


def _group_exists(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except OSError:
        return False
    return True


def _signal_group(leader: int, number: int) -> None:
    """Send a signal to a group whose leader is not reaped yet."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        # It has only just been forked and has no group yet.
        _signal_process(leader, number)
    except OSError:
        pass


def _signal_process(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def main() -> None:
    """Take the socket from standard input, which children must not inherit, and run."""
    adapter = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Service managers signal every process of a service: this one is still needed, and ends with the adapter.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    SupervisorProcess(adapter).run()


if __name__ == "__main__":
    main()
