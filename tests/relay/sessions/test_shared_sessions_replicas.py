"""One upstream session of a principal for all replicas."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import StoreUnavailable
from tests.relay.relaying import Clock
from tests.relay.sharing import Client, LiveUpstream, client, sharing
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until


async def heard() -> None:
    """Let the words that were said arrive."""
    await asyncio.sleep(0)


async def test_replicas_that_open_at_once_share_one() -> None:
    """Both ask the server for a session; the one that is second closes its own and goes on in the first."""
    upstream, memory = LiveUpstream(), SharedMemory()
    one, two = (sharing(upstream, memory.replica()) for _ in range(2))
    upstream.opens.clear()
    both = [asyncio.create_task(client(each)) for each in (one, two)]
    await until(lambda: upstream.opened >= 2)
    upstream.opens.set()
    ada, ben = [await each for each in both]
    assert [await ada.call(1, "a"), await ben.call(1, "b")] == ["a", "b"]
    assert [await Client(two, ada.session).call(2, "c"), await Client(one, ben.session).call(2, "d")] == [
        "c",
        "d",
    ]
    assert len(upstream.alive) == 1


async def test_session_that_another_replica_opened_anew_is_followed() -> None:
    """By its word, and by the name that a client brings before the word has come."""
    upstream, memory = LiveUpstream(), SharedMemory()
    stores = [memory.replica() for _ in range(3)]
    one, two, three = (sharing(upstream, store) for store in stores)
    ada = await client(one)
    for each in (two, three):
        assert await Client(each, ada.session).call(1, "a") == "a"
    stores[2].deaf = True
    upstream.alive.clear()
    assert await ada.call(2, "b") == "b"
    await heard()
    for each in (two, three, one):
        assert await Client(each, ada.session).call(3, "c") == "c"
        assert await (await client(each)).call(1, "new") == "new"
    assert upstream.opened == 2 and upstream.alive == {"real-2"}


async def test_words_that_may_have_been_missed_are_asked_for() -> None:
    """A new client gets no part in a session that is over."""
    upstream, memory = LiveUpstream(), SharedMemory()
    stores = [memory.replica() for _ in range(2)]
    one, two = (sharing(upstream, store) for store in stores)
    ada = await client(one)
    await Client(two, ada.session).call(1, "a")
    stores[1].deaf = True
    upstream.alive.clear()
    await ada.call(2, "b")
    stores[1].unsure()
    ben = await client(two)
    before = len(upstream.requests)
    assert await ben.call(1, "c") == "c"
    assert len(upstream.requests) == before + 1
    stores[1].unsure()
    stores[1].down = True
    with pytest.raises(StoreUnavailable):
        await ben.call(2, "d")
    stores[1].down = False
    assert await ben.call(3, "e") == "e"


async def test_session_that_is_used_elsewhere_is_not_idle() -> None:
    """The replica that uses it writes so, and one that looked at the row before looks again."""
    upstream, memory, clock = LiveUpstream(), SharedMemory(), Clock()
    stores: list[ReplicaStore] = [memory.replica() for _ in range(2)]
    one, two = (sharing(upstream, store, idle_ttl=60, clock=clock) for store in stores)
    ada = await client(one)
    for number in range(5):
        clock.now += 40
        await ada.call(number, "a")
        await one.shared.write_used()
        await two.shared.tidy()
    assert upstream.alive == {"real-1"}
    clock.now += 61
    [row] = await memory.rows.overdue("shared:one", clock())
    await ada.call(9, "a")
    await one.shared.write_used()
    await two.shared._close_idle(row)
    assert upstream.alive == {"real-1"}
    clock.now += 61
    await two.shared.tidy()
    assert upstream.alive == set()
    await heard()
    assert await ada.call(10, "a") == "a" and upstream.alive == {"real-2"}


async def test_session_that_another_replica_closed_is_forgotten() -> None:
    """Also where nobody asks for it any more; one that others still use stays known."""
    upstream, memory, clock = LiveUpstream(), SharedMemory(), Clock()
    stores: list[ReplicaStore] = [memory.replica() for _ in range(2)]
    one, two = (sharing(upstream, store, idle_ttl=60, clock=clock) for store in stores)
    await client(one)
    clock.now += 61
    await two.shared.tidy()
    assert upstream.alive == set()
    await heard()
    await one.shared.tidy()
    assert repr(one.shared).endswith(": 0>")
    ada = await client(one)
    clock.now += 61
    await Client(two, ada.session).call(1, "a")
    await two.shared.write_used()
    stores[0].unsure()
    await one.shared.tidy()
    assert repr(one.shared).endswith(": 1>") and upstream.alive == {"real-2"}
