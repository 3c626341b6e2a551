"""The threads that touch the disk, and what its failures are called."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from adapter.errors import AdapterError, StorageFailed, StorageFull

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""Enough to keep the processors hashing while some wait for a sync."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SENTENCES = {
    errno.EACCES: "The adapter may not use its directory of files: check the permissions below storage.root.",
    errno.EPERM: "The adapter may not use its directory of files: check the permissions below storage.root.",
    errno.EROFS: "The disk of storage.root is read-only.",
    errno.EMFILE: "The adapter has too many files open: raise the limit of its process.",
    errno.ENFILE: "The machine has too many files open.",
    errno.ENOENT: "A directory below storage.root is missing.",
    errno.ENOTDIR: "Something below storage.root is not a directory where one must be.",
    errno.ELOOP: "Something below storage.root is a link where a directory must be.",
}


def failure(error: OSError) -> AdapterError:
    """The failure of the catalogue for one of the operating system; its sentence holds no path."""
    if error.errno in _FULL:
        return StorageFull()
    return StorageFailed(_SENTENCES.get(error.errno or 0))


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], _: Future[Any]) -> None:
    """From the thread, say that its work has ended. A loop that has gone has nobody left to tell."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(_wake, ended)


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


async def _end_of(running: asyncio.Future[Any]) -> None:
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    if not running.cancelled():
        running.exception()  # looked at, so that nobody complains that nobody did


class Disk:
    """Runs what blocks in threads of its own: a slow disk must not hold up name look-ups, and they not it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        self._closed = False

    async def do(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run ``work`` in a thread. Raises StorageFull or StorageFailed for its OSError.

        It is over when this returns, also when the caller was cancelled meanwhile: whoever cleans up then finds
        the disk as it will stay.
        """
        if self._closed:
            raise StorageFailed("The store of files is closed.")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        running = self._threads.submit(work, *arguments, **options)
        # The one way back: a future that follows another, in a task, under a shield, has four turns of the loop.
        running.add_done_callback(partial(_tell, loop, ended))
        try:
            await ended
        except asyncio.CancelledError:
            await _end_of(asyncio.wrap_future(running))
            raise
        try:
            return running.result()
        except OSError as error:
            raise failure(error) from error

    async def finish(self, work: Callable[[ThreadPoolExecutor], Coroutine[Any, Any, T]]) -> T:
        """As ``do``, for work that goes to the threads by itself."""
        if self._closed:
            raise StorageFailed("The store of files is closed.")
        running = asyncio.ensure_future(work(self._threads))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _end_of(running)
            raise
        except OSError as error:
            raise failure(error) from error

    def close(self) -> None:
        """What runs still ends; nothing new begins."""
        self._closed = True
        self._threads.shutdown(wait=False)


class Descriptor:
    """A file descriptor that threads use: ``with descriptor as number``. Closing it waits for them, without
    blocking: the last one out closes. A number closed under a thread's hands would soon be another file's.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()
        self._users = 0
        self._closing = False

    def __repr__(self) -> str:
        return f"<Descriptor {self._number}: {'closing' if self._closing else 'open'}, {self._users} users>"

    def __enter__(self) -> int:
        with self._lock:
            if self._closing:
                raise OSError(errno.EBADF, "the file was closed")
            self._users += 1
        return self._number

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            last = self._closing and self._users == 0
        if last:
            os.close(self._number)

    def close(self) -> None:
        """Harmless when done twice."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            unused = self._users == 0
        if unused:
            os.close(self._number)

    def __del__(self) -> None:
        self.close()
