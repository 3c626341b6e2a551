"""Lines that are appended to a file or to standard output: each whole, in one write, before anybody goes on.

To append some hundred bytes to a file of a local disk takes microseconds, and a hop to a thread and back a hundred, so
the loop does it itself. A thread does what may take its time: opening files, standard output, file systems of a
network, what failed, and all lines while the disk is slow. So a slow disk delays the calls that wait for their lines
and nobody else. Lines that come while the thread writes are written together with the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import select
import stat
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from adapter.errors import AuditUnavailable

READABLE = 0o640
"""The permissions of a new file: its owner writes, its group may collect."""

FULL_FOR = 10.0
"""Seconds that a pipe may be full before a line counts as not written."""

PATIENCE = 10.0
"""Seconds that a line may take; then the disk, or the reader of the pipe, counts as stuck until it goes on."""

MOST_WAITING = 10_000
"""Lines that wait at once; with more of them the log counts as unavailable."""

SLOW = 0.01
"""Seconds of a line on the loop that show a slow disk."""

RESTS = 100
"""For so many times as long as a slow line took, lines on the loop are watched, and after another one written by the
thread: the loop loses two hundredths of its time. To watch takes longer than to write.
"""

LOOKS = 0.01
"""Seconds between two looks at whether the file was renamed: each takes longer than to write a line."""

LOCAL = frozenset(("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"))
"""File systems that no other machine can hold up."""

_MOUNTS = Path("/proc/self/mountinfo")
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

# Only Linux has it, and only there a file system counts as local.
_OF_THREAD = partial(resource.getrusage, getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))

Waiting = list[tuple[bytes, asyncio.Future[None]]]


@dataclass(eq=False)
class AuditLog:
    """Appends lines to ``file``, to standard output without one. Several processes may have one file.

    It opens the file again when it was renamed or removed, at most LOOKS later. ``failing`` tells whether the last
    write failed. A line may take ``patience`` seconds; one that takes longer may be written all the same. ``now`` is a
    clock that never goes back, in seconds; ``usage`` tells how often this thread has waited for anything but a
    processor.
    """

    file: Path | None
    _: KW_ONLY
    patience: float = PATIENCE
    now: Callable[[], float] = time.monotonic
    usage: Callable[[], resource.struct_rusage] = _OF_THREAD

    def __post_init__(self) -> None:
        self._local = False
        self._watched_until = self._slow_until = self._looked = float("-inf")
        self._stuck = False
        self._fd: int | None = None if self.file is not None else 1
        self._held: tuple[int, int] | None = None
        self._torn = False
        self._stale = False
        self._closed = False
        self._thread: Thread | None = None
        self._lines: SimpleQueue[tuple[asyncio.AbstractEventLoop, list[bytes]] | None] = SimpleQueue()
        self._waiting: Waiting = []
        self._since = 0.0
        self._writing: Waiting = []
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self.failing = False

    def __repr__(self) -> str:
        return f"<AuditLog {'to a file' if self.file else 'to stdout'}: {len(self._waiting)} lines wait>"

    def require(self) -> None:
        """Open the file and close it again, to know at start that it can be written. Raises AuditUnavailable."""
        self._require_open()
        self._close()

    def reopen(self) -> None:
        """Open the file again for the next line."""
        self._stale = True

    async def write(self, line: bytes) -> None:
        """Append a line, which ends in a newline. Raises AuditUnavailable."""
        if self.write_at_once(line):
            return
        if self._closed or self._stuck or len(self._waiting) >= MOST_WAITING:
            raise AuditUnavailable
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            self._since = loop.time()
        self._waiting.append((line, future))
        if not self._writing:
            self._hand_over(loop)
        await future

    async def close(self) -> None:
        """Write what waits, and close the file."""
        self._closed = True
        if self._writing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self.patience)
        self._lines.put(None)
        # A thread that is stuck may go on at any time, and must not write to another's file then.
        if not self._writing:
            self._close()

    def _close(self) -> None:
        if self.file is not None and self._fd is not None:
            os.close(self._fd)
            self._fd, self._local = None, False

    def write_at_once(self, line: bytes) -> bool:
        """Write a line on the loop, if that takes no time. One for which this is False is left to ``write``."""
        began = self.now()
        if not self._local or self._writing or self._stale or began < self._slow_until:
            return False
        waits = self.usage().ru_nvcsw if began < self._watched_until else None
        try:
            if began > self._looked + LOOKS:
                if self._was_renamed():
                    return False
                self._looked = began
            assert self._fd is not None, "a file that is local is open"
            self._write_whole(self._fd, line)
            self.failing = False
        except OSError:
            return False
        finally:
            ended = self.now()
            if ended - began > SLOW:
                self._watched_until = ended + RESTS * (ended - began)
                # On a crowded machine the loop may have lost its processor meanwhile, which says nothing of the disk.
                if waits is not None and self.usage().ru_nvcsw > waits:
                    self._slow_until = self._watched_until
        return True

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the thread write all that waits."""
        if self._thread is None:
            # No thread of an executor: those are waited for at exit, also if their disk is stuck.
            thread = Thread(target=self._run, name="audit", daemon=True)
            thread.start()
            self._thread = thread
        self._writing, self._waiting = self._waiting, []
        self._timer = loop.call_at(self._since + self.patience, self._give_up)
        self._lines.put((loop, [line for line, _ in self._writing]))

    def _give_up(self) -> None:
        """Tell everybody who waits that the disk is stuck. Their lines are written when it goes on."""
        self._stuck = self.failing = True
        for _, future in (*self._writing, *self._waiting):
            _settle(future, written=False)

    def _written(self, count: int) -> None:
        """Take note that the thread has written this many of the lines that it got."""
        assert self._timer is not None, "the lines were handed over"
        self._timer.cancel()
        done, self._writing = self._writing, []
        if self._stuck:
            self._since = asyncio.get_running_loop().time()
        self.failing, self._stuck = count < len(done), False
        for place, (_, future) in enumerate(done):
            _settle(future, written=place < count)
        if self._waiting:
            self._hand_over(asyncio.get_running_loop())
        elif self._closed:
            self._ended.set()

    # --- in the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._lines.get()) is not None:
            loop, lines = job
            count = self._append(lines)
            # The loop may be closed by now, where the disk was stuck.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._written, count)

    def _append(self, lines: list[bytes]) -> int:
        """Write lines until one cannot be written; how many were."""
        written = 0
        try:
            fd = self._require_open()
            for line in lines:
                self._write_whole(fd, line)
                written += 1
        except (AuditUnavailable, OSError):
            return written
        return written

    def _write_whole(self, fd: int, line: bytes) -> None:
        """Write a line by one system call; what is left of one that was cut off is ended first. Raises OSError."""
        data = b"\n" + line if self._torn else line
        try:
            count = os.write(fd, data)
        except BlockingIOError:  # a pipe that does not wait is waited for
            select.select([], [fd], [], FULL_FOR)
            count = os.write(fd, data)
        if count < len(data):
            self._torn = count > 0 or self._torn
            raise OSError("the line was cut off")
        self._torn = False

    def _require_open(self) -> int:
        if self.file is None:
            return 1
        try:
            if self._fd is not None and not self._stale and not self._was_renamed():
                return self._fd
            fd, found = _opened(self.file)
            self._local = stat.S_ISREG(found.st_mode) and is_local(found.st_dev, _MOUNTS)
            self._held = found.st_dev, found.st_ino
        except OSError as error:
            raise AuditUnavailable from error
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd, self._stale = fd, False
        return fd

    def _was_renamed(self) -> bool:
        assert self.file is not None, "standard output is not renamed"
        try:
            there = self.file.stat()
        except FileNotFoundError:
            return True
        return (there.st_dev, there.st_ino) != self._held


def _settle(future: asyncio.Future[None], *, written: bool) -> None:
    # A waiter that was cancelled, or was told already, takes no result.
    if future.done():
        return
    if written:
        future.set_result(None)
    else:
        future.set_exception(AuditUnavailable())


def is_local(device: int, mounts: Path) -> bool:
    """Tell whether a file of this device is on one of LOCAL; ``mounts`` is the system's list of what is mounted."""
    number = f"{os.major(device)}:{os.minor(device)}"
    rows: list[str] = []
    with contextlib.suppress(OSError):
        rows = mounts.read_text(errors="replace").splitlines()
    # "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw": some of the fields before the dash may be missing.
    kinds = {row.partition(" - ")[2].partition(" ")[0] for row in rows if row.split(" ", 3)[2:3] == [number]}
    return bool(kinds) and kinds <= LOCAL


def _opened(file: Path) -> tuple[int, os.stat_result]:
    """Open a file to append to, and return its status with it. Raises OSError, also for what might never open or take a
    line, such as a pipe.
    """
    with contextlib.suppress(FileNotFoundError):
        _require_kind(file.stat())
    fd = os.open(file, _FLAGS, READABLE)
    try:
        found = os.fstat(fd)
        _require_kind(found)
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return fd, found


def _require_kind(found: os.stat_result) -> None:
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        sentence = "it is neither a regular file nor a character device; for a pipe set stdout"
        raise OSError(errno.EINVAL, sentence)
