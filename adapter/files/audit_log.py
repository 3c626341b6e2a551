"""Lines that are appended to a file or to standard output: each whole, in one write, before anybody goes on.

One thread writes, so a slow disk delays the calls that wait for their lines and nobody else. Lines that come while it
writes are written together with the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapter.errors import AuditUnavailable

READABLE = 0o640
"""The permissions of a new file: its owner writes, its group may collect."""

FULL_FOR = 10.0
"""Seconds that a pipe may be full before a line counts as not written."""

PATIENCE = 10.0
"""Seconds that a line may take; then the disk, or the reader of the pipe, counts as stuck until it goes on."""

MOST_WAITING = 10_000
"""Lines that wait at once; with more of them the log counts as unavailable."""


class AuditLog:
    """Appends lines to ``file``, to standard output without one. Several processes may have one file.

    It opens the file again when it was renamed or removed. ``failing`` tells whether the last write failed. A line may
    take ``patience`` seconds; one that takes longer may be written all the same.
    """

    def __init__(self, file: Path | None, *, patience: float = PATIENCE) -> None:
        self._file = file
        self._patience = patience
        self._stuck = False
        self._fd: int | None = None if file is not None else 1
        self._torn = False
        self._stale = False
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "audit")
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.failing = False

    def __repr__(self) -> str:
        return f"<AuditLog {'to a file' if self._file else 'to stdout'}: {len(self._waiting)} lines wait>"

    def require(self) -> None:
        """Open the file and close it again, to know at start that it can be written. Raises AuditUnavailable."""
        self._require_open()
        self._close()

    def reopen(self) -> None:
        """Open the file again for the next line."""
        self._stale = True

    async def write(self, line: bytes) -> None:
        """Append a line, which ends in a newline. Raises AuditUnavailable."""
        if self._closed or self._stuck or len(self._waiting) >= MOST_WAITING:
            raise AuditUnavailable
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((line, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._drain())
        try:
            async with asyncio.timeout(self._patience):
                await future
        except TimeoutError:
            self._stuck = self.failing = True
            raise AuditUnavailable from None

    async def close(self) -> None:
        """Write what waits, and close the file."""
        self._closed = True
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=self._patience)
        self._thread.shutdown(wait=False)
        self._close()

    def _close(self) -> None:
        if self._file is not None and self._fd is not None:
            os.close(self._fd)
            self._fd = None

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            written = await loop.run_in_executor(self._thread, self._append, [line for line, _ in batch])
            self.failing, self._stuck = written < len(batch), False
            for place, (_, future) in enumerate(batch):
                # A waiter that was cancelled takes no result.
                if not future.done():
                    if place < written:
                        future.set_result(None)
                    else:
                        future.set_exception(AuditUnavailable())

    # --- in the thread ----------------------------------------------------------------------------------------

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
        count = _write(fd, data)
        self._torn = count < len(data) and (count > 0 or self._torn)
        if count < len(data):
            raise OSError("the line was cut off")

    def _require_open(self) -> int:
        if self._file is None:
            return 1
        try:
            if self._fd is not None and not self._stale and not self._was_renamed(self._fd):
                return self._fd
            fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, READABLE)
        except OSError as error:
            raise AuditUnavailable from error
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd, self._stale = fd, False
        return fd

    def _was_renamed(self, fd: int) -> bool:
        assert self._file is not None, "standard output is not renamed"
        try:
            there = self._file.stat()
        except FileNotFoundError:
            return True
        held = os.fstat(fd)
        return (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)


def _write(fd: int, data: bytes) -> int:
    """Write once; a pipe that does not wait is waited for. Raises OSError."""
    try:
        return os.write(fd, data)
    except BlockingIOError:
        select.select([], [fd], [], FULL_FOR)
        return os.write(fd, data)
