"""The time that running requests get at a stop."""

from __future__ import annotations

import asyncio

from adapter.edge.http.listener import Grace


async def test_it_ends_with_the_tasks() -> None:
    """Nobody waits longer than for what is under way."""
    grace = Grace(60)
    async with asyncio.timeout(20):
        await grace.wait([asyncio.create_task(asyncio.sleep(0)) for _ in range(3)])
    assert not grace.over and 0 < grace.left <= 60


async def test_it_ends_when_it_is_over() -> None:
    """One grace for everything: what waits later has what is left."""
    grace = Grace(0.02)
    endless = asyncio.create_task(asyncio.Event().wait())
    async with asyncio.timeout(20):
        await grace.wait([endless])
        await grace.wait([endless])
    assert grace.over and not endless.done()
    endless.cancel()


async def test_it_ends_when_it_is_cut() -> None:
    """Also for who waits already."""
    grace = Grace(60)
    endless = asyncio.create_task(asyncio.Event().wait())
    waiting = asyncio.create_task(grace.wait([endless]))
    await asyncio.sleep(0)
    grace.cut()
    async with asyncio.timeout(20):
        await waiting
    assert grace.over and grace.left == 0
    endless.cancel()
