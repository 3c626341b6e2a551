"""The threads that touch the disk, the beginning of a write-back, and the names of the disk's failures."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Generator
from functools import cache, partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, ParamSpec, TypeVar

from adapter.errors import AdapterError, StorageFailed, StorageFull

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
"""Enough to keep the processors hashing while some wait for a sync."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SENTENCES = {
    errno.EACCES: "The adapter has no permission for its files: check the permissions below storage.root.",
    errno.EPERM: "The adapter has no permission for its files: check the permissions below storage.root.",
    errno.EROFS: "The disk of storage.root is read-only.",
    errno.EMFILE: "The adapter has too many files open: raise the limit of its process.",
    errno.ENFILE: "The machine has too many files open.",
    errno.ENOENT: "A directory below storage.root is missing.",
    errno.ENOTDIR: "A path below storage.root must be a directory and is not one.",
    errno.ELOOP: "A path below storage.root must be a directory and is a symbolic link.",
}


def failure(error: OSError) -> AdapterError:
    """The failure of the catalogue for one of the operating system; its sentence holds no path."""
    if error.errno in _FULL:
        return StorageFull()
    return StorageFailed(_SENTENCES.get(error.errno or 0))


_SYNC_FILE_RANGE_WRITE = 2
"""linux/fs.h"""


def begin_write_back(number: int, offset: int, size: int) -> None:
    """Ask the system to begin writing a part of a file to the disk, so that a later fsync has less to wait for.

    Nothing is promised: a failure is found by that fsync. Does nothing but on Linux. ``number`` is a descriptor.
    """
    _sync_file_range()(number, offset, size, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], object]:
    """Return sync_file_range(2), or a function that does nothing where the system has none."""
    if sys.platform != "linux":
        return lambda _number, _offset, _size, _flags: None
    # Late: to load it takes memory, and only large files need it.
    import ctypes

    call = ctypes.CDLL(None).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


class _Work:
    """Something that one thread does, and who waits for it. All but ``run`` belongs to the loop."""

    __slots__ = ("_work", "ended", "error", "loop", "over", "result")

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self.loop = loop
        self.ended: asyncio.Future[None] = loop.create_future()
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """In the thread. A loop that has gone meanwhile has nobody left to tell."""
        self.result, self.error = _outcome(self._work)
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.over = True
        if not self.ended.done():
            self.ended.set_result(None)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    # In a frame of its own, which the error will hold: holding it in turn would make a circle.
    try:
        return work(), None
    except BaseException as error:
        return None, error


class SideWork(Generic[T]):
    """Work that another thread does meanwhile, or whoever asks for its result if no thread has come to it by then.

    So a thread of the disk may wait for it: it waits only for work that runs already. One thread asks, once.
    """

    __slots__ = ("_begun", "_outcome", "_running", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._begun = Lock()
        self._running = Lock()
        self._running.acquire()
        self._outcome: tuple[Any, BaseException | None] = None, None

    def run(self) -> None:
        """Do the work here, unless it has begun."""
        if self._begun.acquire(blocking=False):
            # The queue may hold this long after it was done.
            work, self._work = self._work, None
            assert work is not None, "work begins once"
            self._outcome = _outcome(work)
            self._running.release()

    def result(self) -> T:
        """Return what the work returns, when it is over. Raises what it raises."""
        self.run()
        self._wait()
        (result, error), self._outcome = self._outcome, (None, None)
        if error is None:
            found: T = result
            return found
        try:
            raise error
        finally:
            del error  # it holds this frame

    def drop(self) -> None:
        """Let it not begin; where it runs, wait for its end."""
        if not self._begun.acquire(blocking=False):
            self._wait()

    def _wait(self) -> None:
        with self._running:
            pass


def _labour(works: SimpleQueue[_Work | SideWork[Any] | None]) -> None:
    """Run the works of the queue in a thread until one is None."""
    while (work := works.get()) is not None:
        work.run()
        del work  # what it holds is not to live until the next one comes


class Disk:
    """Runs what blocks in threads of its own: a slow disk must not hold up name look-ups, and they not it.

    They are no ThreadPoolExecutor: its futures, with a lock and a condition each, cost more than most of what is done
    here. Like the state store's they are daemons, since a process that is killed leaves nothing half done either.
    """

    def __init__(self) -> None:
        self._works: SimpleQueue[_Work | SideWork[Any] | None] = SimpleQueue()
        self._under_way = 0
        self._threads = 0
        self._starting = Lock()
        self._closed = False

    async def do(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run ``work`` in a thread. Raises StorageFull or StorageFailed for its OSError.

        It is over when this returns, also when the caller was cancelled meanwhile: whoever cleans up then finds
        the disk as it will stay.
        """
        if self._closed:
            raise StorageFailed("The store of files is closed.")
        running = _Work(partial(work, *arguments, **options), asyncio.get_running_loop())
        self._under_way += 1
        self._have_threads(self._under_way)
        self._works.put(running)
        try:
            await _over(running)
        finally:
            self._under_way -= 1
        if running.error is None:
            result: T = running.result
            return result
        try:
            raise running.error
        except OSError as error:
            raise failure(error) from error
        finally:
            del running  # its error holds this frame

    async def steps(self, work: Generator[None, None, T]) -> T:
        """Run a generator to its end and return its result, each step by ``do``: between two, others have their turn.

        A caller that is cancelled leaves the rest undone.
        """
        with contextlib.closing(work):
            while (ended := await self.do(_step, work)) is None:
                """It is large."""
        return ended[0]

    def begin_beside(self, work: Callable[[], T]) -> SideWork[T]:
        """Begin ``work`` in one more thread, for a thread that is at work here and will ask for the result."""
        beside = SideWork(work)
        self._have_threads(self._under_way + 1)
        self._works.put(beside)
        return beside

    def close(self) -> None:
        """Begin nothing new. Work that already runs still ends."""
        with self._starting:
            if self._closed:
                return
            self._closed = True
            for _ in range(self._threads):
                self._works.put(None)

    def _have_threads(self, wanted: int) -> None:
        """Start a thread if there are fewer than ``wanted`` and than THREADS."""
        if wanted <= self._threads or self._threads == THREADS:
            return
        with self._starting:
            if self._threads < THREADS and not self._closed:
                self._threads += 1
                Thread(
                    target=_labour, args=(self._works,), name=f"files-{self._threads}", daemon=True
                ).start()

    def __del__(self) -> None:
        self.close()


def _step(work: Generator[None, None, T]) -> tuple[T] | None:
    """Go on until the next yield. The result when that was the end."""
    try:
        next(work)
    except StopIteration as end:
        return (end.value,)
    return None


async def _over(work: _Work) -> None:
    """Wait until it is; who is cancelled meanwhile is so afterwards."""
    try:
        await work.ended
    except asyncio.CancelledError:
        while not work.over:
            work.ended = work.loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):  # the first one is raised afterwards
                await work.ended
        raise


class Descriptor:
    """A file descriptor that threads use: ``with descriptor as number``. Closing it waits for them, without
    blocking: the last one out closes. A number closed under a thread's hands would soon be another file's.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = Lock()
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
