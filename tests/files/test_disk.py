"""Work in the disk's threads: it ends before its caller goes on, and fails in sentences."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.errors import StorageFailed, StorageFull
from adapter.files.disk import THREADS, Disk, SideWork, begin_write_back

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


# --- work beside other work -------------------------------------------------------------------------------------------


async def test_work_beside_other_work_is_done_meanwhile(disk: Disk) -> None:
    """A thread at work gets a second one, and waits for the result only when it asks."""
    met = threading.Barrier(2)

    def work() -> tuple[int, int]:
        beside = disk.begin_beside(lambda: (met.wait(PATIENCE), threading.get_ident())[1])
        met.wait(PATIENCE)
        return threading.get_ident(), beside.result()

    own, other = await disk.do(work)
    assert own != other


async def test_work_that_no_thread_takes_is_done_by_who_asks(disk: Disk) -> None:
    """Although every thread is at work and waits for work beside it, all of them come to an end."""
    together = threading.Barrier(THREADS)

    def work() -> bool:
        together.wait(PATIENCE)
        beside = disk.begin_beside(threading.get_ident)
        together.wait(PATIENCE)
        return beside.result() > 0

    assert all(await asyncio.gather(*(disk.do(work) for _ in range(THREADS))))


def test_a_failure_beside_meets_who_asks() -> None:
    """Work beside raises where its result is wanted."""
    with pytest.raises(ZeroDivisionError):
        SideWork(lambda: fails(ZeroDivisionError())).result()


def test_dropped_work_never_begins() -> None:
    """Who drops it before it began, or after it was over, waits for nothing."""
    done: list[int] = []
    beside = SideWork(lambda: done.append(1))
    beside.drop()
    beside.run()
    assert not done
    over = SideWork(lambda: done.append(2))
    over.result()
    over.drop()
    assert done == [2]


async def test_dropped_work_that_runs_is_over_afterwards(disk: Disk) -> None:
    """What it uses may be given to somebody else as soon as drop has returned."""
    begun, end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def slow() -> None:
        begun.set()
        assert end.wait(PATIENCE)
        ended.append(True)

    def work() -> bool:
        beside = disk.begin_beside(slow)
        assert begun.wait(PATIENCE)
        threading.Timer(0.01, end.set).start()
        beside.drop()
        return bool(ended)

    assert await disk.do(work)


def test_a_write_back_changes_nothing(tmp_path: Path) -> None:
    """The system may begin with any part of a file; what it cannot do is left to the sync, which says so."""
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.write(number, b"content")
        begin_write_back(number, 0, 4)
        begin_write_back(number, 1 << 40, 1 << 20)
        assert os.pread(number, 100, 0) == b"content"
    finally:
        os.close(number)
    begin_write_back(number, 0, 4)
