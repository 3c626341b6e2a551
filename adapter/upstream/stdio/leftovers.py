"""Processes that a supervisor started and that it can no longer end, because it was killed. Linux only.

Each child has a mark in its environment, which everything it starts inherits: the supervisor's namespace of process
ids, its process id and the time of its start, so that a mark never means a later process with the same id. Without
``/proc`` nothing is found. Needs the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from adapter.upstream.stdio.process_table import process_ids, stat_fields

MARK = "MCP_ADAPTER_SUPERVISOR"
"""Name of the variable. Its value is ``SUPERVISOR/NUMBER``: ``identity()`` and the number of the child."""

_START_TIME = 19
"""Position of the start time in ``stat_fields``."""


def identity() -> str:
    """The identity of this process as it stands in marks."""
    return f"{_namespace()}:{os.getpid()}:{_start_time(os.getpid())}"


def mark_of(pid: int) -> tuple[str, int] | None:
    """Read the mark of a process of this user: its supervisor and its number; None if it has none."""
    try:
        # pathlib takes as much memory as all else in the supervisor, in which this runs.
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  (no pathlib here)
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
