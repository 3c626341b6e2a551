"""Places for programs: one begins in each turn of the loop, and no more run at once than there are places."""

from __future__ import annotations

import asyncio

import pytest

from adapter.hosted.scripts.subprocesses import Starts


async def test_one_begins_in_each_turn_of_the_loop() -> None:
    """Others are served between two of them."""
    starts, begun, others = Starts(), 0, 0

    async def begin() -> None:
        nonlocal begun
        async with starts.place():
            begun += 1

    running = [asyncio.ensure_future(begin()) for _ in range(20)]
    while begun < len(running):
        before = begun
        await asyncio.sleep(0)
        assert begun - before <= 1
        others += 1
    assert others >= len(running)


async def test_no_more_run_than_there_are_places() -> None:
    """Who waits for one begins when another ends, and who leaves while waiting takes none."""
    starts, going, most, end = Starts(at_once=3), 0, 0, asyncio.Event()

    async def run() -> None:
        nonlocal going, most
        async with starts.place():
            going += 1
            most = max(most, going)
            await end.wait()
            going -= 1

    running = [asyncio.ensure_future(run()) for _ in range(10)]
    while going < 3:
        await asyncio.sleep(0)
    running[-1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.pop()
    end.set()
    await asyncio.gather(*running)
    assert (going, most) == (0, 3)
