"""Processes as the system knows them: the children of this one, and those that a killed supervisor left behind.

Each child has a mark in its environment, which everything it starts inherits: the supervisor's namespace of process
ids, its process id and the time of its start, so that a mark never means a later process with the same id.

Needs the standard library only. What Linux alone can do says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of ``prctl``; see linux/prctl.h."""

MARK = "MCP_ADAPTER_SUPERVISOR"
"""Name of the variable. Its value is ``SUPERVISOR/NUMBER``: ``identity()`` and the number of the child."""

_PARENT, _START_TIME = 1, 19
"""Positions in ``stat_fields``."""


def prctl() -> Callable[[int, int], object]:
    """Return the system call of that name on Linux; elsewhere a function that does nothing."""
    if sys.platform != "linux":
        return lambda _option, _value: None
    # Late, and before a fork: to load it takes memory and time.
    import ctypes

    call = ctypes.CDLL(None).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


def ended_process() -> tuple[int, int | None] | None:
    """Find a child that has ended: its id, and its status if finding it has reaped it already."""
    try:
        if sys.platform == "linux":
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return (found.si_pid, None) if found is not None else None
        # Python has no waitid on every other system.
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def child_ids() -> list[int]:
    """The processes whose parent is this one; one that changes its parent meanwhile may be missing. Linux only."""
    pid = os.getpid()
    try:
        # pathlib takes as much memory as all else in this process.
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123  (no pathlib here)
            return [int(each) for each in file.read().split()]
    except OSError:
        # Systems without this list are slower, not less thorough.
        return [each for each in process_ids() if parent_of(each) == pid]


def process_ids() -> list[int]:
    """All processes of the system. Linux only; elsewhere none are known."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208  (see above)
    except OSError:
        return []


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if there is no such process. Linux only."""
    try:
        return int(stat_fields(pid)[_PARENT])
    except OSError:
        return 0


def stat_fields(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` behind the name of the program; see proc(5). Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  (see above)
        return file.read().rpartition(b")")[2].split()


def has_children() -> bool:
    """Tell whether this process has any child, where one that waits to be reaped counts too. Linux only."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def group_exists(leader: int) -> bool:
    """Tell whether any process is in a group, where one that waits to be reaped counts too."""
    try:
        os.killpg(leader, 0)
    except OSError:
        return False
    return True


def group_of(pid: int) -> int:
    """The process group of a process; 0 if there is no such process."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def send_signal(target: int, number: int) -> None:
    """Send a signal to a process, or with a negative target to a group. Nothing happens if there is none."""
    with contextlib.suppress(OSError):
        os.kill(target, number)


# --- leftovers, of which none are found without /proc -----------------------------------------------------------


def identity() -> str:
    """The identity of this process as it stands in marks."""
    return f"{_namespace()}:{os.getpid()}:{_start_time(os.getpid())}"


def mark_of(pid: int) -> tuple[str, int] | None:
    """Read the mark of a process of this user: its supervisor and its number; None if it has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  (see above)
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            variables = file.read().split(b"\0")
    except OSError:
        return None
    begin = f"{MARK}=".encode()
    marks = [each[len(begin) :].decode(errors="replace") for each in variables if each.startswith(begin)]
    supervisor, slash, number = marks[0].rpartition("/") if marks else ("", "", "")
    return (supervisor, int(number)) if slash and number.isdecimal() else None


def marked() -> Iterator[tuple[int, str, int]]:
    """Find the processes of this user that have a mark: process id, supervisor, number."""
    for pid in process_ids():
        if pid != os.getpid() and (mark := mark_of(pid)) is not None:
            yield pid, *mark


def end_leftovers() -> int:
    """Kill the processes whose supervisor is gone. Returns their number.

    Those of a living supervisor stay, and those of another namespace of process ids (a container), where nobody can
    tell from here whether the supervisor lives.
    """
    count = 0
    # Again, because a process may have started another one meanwhile.
    for _ in range(5):
        killed = sum(_kill(pid, supervisor) for pid, supervisor, _ in marked() if _is_gone(supervisor))
        if not killed:
            break
        count += killed
    return count


def _is_gone(supervisor: str) -> bool:
    namespace, _, process = supervisor.partition(":")
    pid, _, start_time = process.partition(":")
    if namespace != _namespace() or not (pid.isdecimal() and start_time):
        return False
    return _start_time(int(pid)) != start_time


def _kill(pid: int, supervisor: str) -> bool:
    """Kill a process if it still is the one that was found. Returns True if it lived."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            mark = mark_of(pid)
            if mark is not None and mark[0] == supervisor:
                signal.pidfd_send_signal(process, signal.SIGKILL)
                return True
        finally:
            os.close(process)
    return False


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115  (see above)
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """The time of a start, in ticks since that of the system; ``""`` if there is no such process."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return ""
    # One that has ended and waits to be reaped ends nothing any more.
    return "" if fields[0] in (b"Z", b"X") else fields[_START_TIME].decode()
