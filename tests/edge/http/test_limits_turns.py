"""Many clients at the same moment: the loop looks after all others in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

from adapter.edge.http.limits import AT_ONCE, Turns
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from tests.edge.raw import RawClient

MANY = 8 * AT_ONCE


class TurnCount:
    """Counts the turns of the loop from now on."""

    def __init__(self) -> None:
        self.now = 0
        self._count()

    def _count(self) -> None:
        self.now += 1
        asyncio.get_running_loop().call_soon(self._count)


async def test_requests_that_come_together_begin_in_many_turns() -> None:
    """Each turn begins its share of those that have just come, and one of those that wait."""
    count = TurnCount()
    begun: list[int] = []

    async def handler(request: Request) -> None:
        begun.append(count.now)
        request.reply.send(204, [])

    listener = await Listener.open(handler, "127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(listener.address[1])) for _ in range(MANY)]
        # Nothing is waited for between these: all are there when the listener looks.
        for client in clients:
            assert client._writer is not None
            client._writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        for client in clients:
            assert (await client.head()).status == 204
    listener.close()
    await listener.drop()
    assert len(begun) == MANY
    assert max(Counter(begun).values()) <= 2 * AT_ONCE


async def test_who_comes_last_does_not_wait_for_all_who_came_together() -> None:
    """A turn is shared by those who wait longest and those who came last, so nobody waits for ever."""
    turns = Turns()
    done: list[int] = []
    for number in range(MANY):
        turns.later(partial(done.append, number))
    await asyncio.sleep(0)
    assert len(done) == AT_ONCE
    assert {0, MANY - 1} <= set(done)
    for _ in range(MANY // AT_ONCE):
        await asyncio.sleep(0)
    assert sorted(done) == list(range(MANY))


async def test_a_turn_that_has_had_its_share_leaves_the_rest_to_the_next() -> None:
    """A share is done at once."""
    turns = Turns()
    done: list[int] = []
    for number in range(2 * AT_ONCE):
        turns.do(partial(done.append, number))
    assert done == list(range(AT_ONCE))
    await asyncio.sleep(0)
    assert len(done) == 2 * AT_ONCE


async def test_a_step_of_its_own_takes_one_turn() -> None:
    """Who waits alone goes on in the next turn."""
    count = TurnCount()
    began = count.now
    await Turns().wait()
    assert count.now - began <= 2
