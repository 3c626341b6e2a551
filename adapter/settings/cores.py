"""The number of workers that ``core.workers`` means on this machine."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time and of the period they are for, or ``max`` (Linux, control groups v2)."""


def worker_count(workers: int | str, quota: Path = _QUOTA) -> int:
    """The number itself, or for ``auto`` that of the processor cores that this process may use, at least 1."""
    if isinstance(workers, int):
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cores_within(quota) or cores))


def _cores_within(quota: Path) -> int | None:
    """The cores that a container may use, rounded up; None where there is no limit, or none can be read."""
    try:
        allowed, period = quota.read_text().split()
        return ceil(int(allowed) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None
