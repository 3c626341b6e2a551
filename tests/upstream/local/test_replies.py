"""Replies that are waited for: their deadlines, many under one timer, and an end without an answer."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import UpstreamBroken
from adapter.upstream.local.replies import Deadlines, PendingReply

SOON, LATER, NEVER = 0.01, 0.02, 60.0


class Bell:
    """Notes that it rang."""

    def __init__(self) -> None:
        self.rang = asyncio.Event()
        self.times = 0

    def ring(self) -> None:
        self.times += 1
        self.rang.set()


async def test_each_rings_once_when_its_time_is_over() -> None:
    """One that ends sooner than those before it is not held up by their timer."""
    deadlines = Deadlines()
    never, later, soon = Bell(), Bell(), Bell()
    for bell, seconds in ((never, NEVER), (later, LATER), (soon, SOON)):
        deadlines.set(bell.ring, seconds)
    async with asyncio.timeout(10):
        await soon.rang.wait()
        await later.rang.wait()
    assert (never.times, later.times, soon.times, len(deadlines)) == (0, 1, 1, 1)
    deadlines.close()


async def test_one_that_was_dropped_does_not_ring() -> None:
    """The timer that was set for it serves those that remain."""
    deadlines = Deadlines()
    dropped, kept = Bell(), Bell()
    deadlines.set(dropped.ring, SOON)
    deadlines.set(kept.ring, LATER)
    deadlines.drop(dropped.ring)
    deadlines.drop(dropped.ring)
    async with asyncio.timeout(10):
        await kept.rang.wait()
    assert (dropped.times, len(deadlines)) == (0, 0)


async def test_nothing_rings_after_the_end() -> None:
    """A server that is closed has failed its requests already."""
    deadlines = Deadlines()
    bell, witness = Bell(), Bell()
    deadlines.set(bell.ring, SOON)
    deadlines.close()
    asyncio.get_running_loop().call_later(LATER, witness.ring)
    async with asyncio.timeout(10):
        await witness.rang.wait()
    assert (bell.times, len(deadlines)) == (0, 0)


async def test_a_reply_without_an_answer_is_a_broken_one() -> None:
    """The relay reads UpstreamBroken where the server ends a request and says nothing."""
    reply = PendingReply()
    waits = asyncio.create_task(reply.head(NEVER, Deadlines()))
    await asyncio.sleep(0)
    reply.end()
    with pytest.raises(UpstreamBroken):
        await waits
