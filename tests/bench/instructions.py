"""Instructions that processes execute, from the counter of the processor (perf_event_open(2)). Linux only.

Most virtual machines have no such counter, and some systems let nobody read it. Then there is a reason instead.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SYSCALL = {"x86_64": 298, "aarch64": 241}
"""Number of perf_event_open by architecture."""

Event = tuple[int, int]
"""Type and configuration of an event, see perf_event_open(2)."""

INSTRUCTIONS: Event = (0, 1)
"""PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS."""

TASK_CLOCK: Event = (1, 1)
"""PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK: nanoseconds of work, which the kernel counts on every machine."""

_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6


class Unreadable(Exception):
    """The counter cannot be read; the text is the reason."""


class _Attributes(ctypes.Structure):
    """``struct perf_event_attr`` in its first version, which every kernel takes."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("breakpoint_type", ctypes.c_uint32),
        ("breakpoint_address", ctypes.c_uint64),
    )


class Counter:
    """A count over all threads of some processes, and over those that they start later, in user mode.

    The kernel's instructions are left out, because most systems let only root count them: a figure means the same
    for everybody. Raises Unreadable.
    """

    def __init__(self, pids: Sequence[int], event: Event = INSTRUCTIONS) -> None:
        self._descriptors: list[int] = []
        try:
            for pid in pids:
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    self._descriptors.append(_open(int(thread.name), event))
        except BaseException:
            self.close()
            raise

    def read(self) -> int:
        """What was counted since the start."""
        return sum(int.from_bytes(os.read(each, 8), "little") for each in self._descriptors)

    def close(self) -> None:
        for each in self._descriptors:
            os.close(each)
        self._descriptors.clear()


def _open(thread: int, event: Event) -> int:
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise Unreadable(f"this program cannot read it on {platform.machine()}")
    attributes = _Attributes(
        type=event[0],
        size=ctypes.sizeof(_Attributes),
        config=event[1],
        flags=_INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR,
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(number, ctypes.byref(attributes), thread, -1, -1, 0)
    if descriptor < 0:
        raise Unreadable(_reason(ctypes.get_errno()))
    return descriptor


def _reason(error: int) -> str:
    if error in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENOSYS):
        return "this machine has no counter of instructions"
    if error in (errno.EACCES, errno.EPERM):
        return "the system does not allow it; see /proc/sys/kernel/perf_event_paranoid"
    return os.strerror(error)


@contextmanager
def counting(pids: Sequence[int]) -> Iterator[Counter | None]:
    """Count the instructions of these processes; None where that cannot be read."""
    try:
        counter = Counter(pids)
    except Unreadable:
        yield None
        return
    try:
        yield counter
    finally:
        counter.close()


def why_unreadable() -> str | None:
    """The reason why instructions cannot be counted here; None if they can."""
    try:
        Counter([os.getpid()]).close()
    except Unreadable as reason:
        return str(reason)
    return None
