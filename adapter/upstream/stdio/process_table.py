"""Processes as the system knows them: the children of this one, their ends and their groups.

Needs the standard library only. What Linux alone can do says so.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of ``prctl``; see linux/prctl.h."""

_PARENT = 1
"""Position of the parent in ``stat_fields``."""


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
