"""Work in the disk's threads: it ends before its caller goes on, and fails in sentences."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator

import pytest

from adapter.errors import StorageFailed, StorageFull
from adapter.files.disk import THREADS, Disk

PATIENCE = 10.0
"""Seconds after which a thread that waits for the test gives up."""


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


def fails(error: BaseException) -> None:
    raise error


async def test_what_the_work_returns_comes_back(disk: Disk) -> None:
    """Its arguments go to another thread, and its result to the caller."""
    assert await disk.do(int, "11", base=3) == 4
    assert await disk.do(threading.get_ident) != threading.get_ident()


async def test_failures_of_the_system_are_those_of_the_catalogue(disk: Disk) -> None:
    """A full disk is StorageFull, another OSError StorageFailed; what is no failure of the disk stays what it is."""
    with pytest.raises(StorageFull):
        await disk.do(fails, OSError(errno.ENOSPC, "full"))
    with pytest.raises(StorageFailed, match="read-only"):
        await disk.do(fails, OSError(errno.EROFS, "read-only"))
    with pytest.raises(ZeroDivisionError):
        await disk.do(fails, ZeroDivisionError())


async def test_a_cancelled_caller_waits_for_the_end_of_its_work(disk: Disk) -> None:
    """However often it is cancelled, the disk is at rest when it goes."""
    begun, end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert end.wait(PATIENCE)
        ended.set()

    caller = asyncio.ensure_future(disk.do(work))
    assert await disk.do(begun.wait, PATIENCE)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
    assert not caller.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_as_much_is_done_at_once_as_there_are_threads(disk: Disk) -> None:
    """Work that waits for other work is not kept from it, and what exceeds the threads comes after."""
    together = threading.Barrier(THREADS)
    await asyncio.gather(*(disk.do(together.wait, PATIENCE) for _ in range(2 * THREADS)))


async def test_a_closed_disk_does_nothing_more(disk: Disk) -> None:
    """What runs ends and is answered, what comes later is refused; closing again is harmless."""
    begun, end = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return end.wait(PATIENCE)

    running = asyncio.ensure_future(disk.do(work))
    assert await disk.do(begun.wait, PATIENCE)
    disk.close()
    disk.close()
    with pytest.raises(StorageFailed, match="closed"):
        await disk.do(len, "x")
    end.set()
    assert await running
