"""What a process and everything below it have used, as the kernel counts it. Linux only."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")

_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


def tree(root: int) -> list[int]:
    """``root`` and all its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _parent(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended while we looked around
    # The command's name stands in brackets and may hold anything; what follows it is numbers.
    return int(stat.rpartition(")")[2].split()[1])


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes, all their threads (also ended ones), in seconds.

    Read from each process's CPU clock (clock_getcpuclockid(3): nanoseconds) and not from /proc/PID/stat,
    whose unit is a tick of 10 ms: a thousand calls through nginx take five of those.
    """
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def pin(pids: list[int], core: int) -> None:
    """Let these processes, all their threads and what they start run on one core only."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})


def rss_bytes(pids: list[int]) -> int:
    """Resident memory of these processes, in bytes. Pages that two of them share count twice."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE for pid in pids)


def forget_peak(pids: list[int]) -> None:
    """Let the peaks that ``peak_rss_bytes`` reads begin at what is resident now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_rss_bytes(pids: list[int]) -> int:
    """The most that was resident of each process since ``forget_peak``, as the kernel kept it, summed, in bytes."""
    peaks = (_PEAK.search(Path(f"/proc/{pid}/status").read_text()) for pid in pids)
    return sum(int(peak[1]) * 1024 for peak in peaks if peak is not None)


def open_descriptors(pids: list[int]) -> int:
    """Files, sockets and all else that these processes have open."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
