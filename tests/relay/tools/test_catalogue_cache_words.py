"""Pins and tools of servers on several replicas: each hears what the others did, or reads it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.errors import CatalogueDrifted, StoreUnavailable
from adapter.relay.tools.catalogue_cache import (
    CHANGED,
    PACE,
    CatalogueCache,
    CatalogueListener,
    CatalogueTeller,
)
from adapter.relay.tools.pins import BASELINES, PINS, SEEN
from adapter.rules.access.principals import Scope
from adapter.state.sqlite import MemoryStore
from tests.relay.guarding import CHANGED as LIST_CHANGED
from tests.relay.guarding import CLICK, EVIL, SHOOT, Guarded, Refused, Shop, guarded
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory


class Replica:
    """A process with a guard, and its view of the store that it shares."""

    def __init__(self, process: Guarded, view: ReplicaStore) -> None:
        self.process = process
        self.view = view
        self.cache = process.cache
        self.cache.tell = CatalogueTeller(view, "one")
        self.listener = CatalogueListener({"one": self.cache}, {"one": self.cache})
        view.listeners.append(self.listener)
        self.review = process.baselines


async def heard() -> None:
    """Wait until all words that were said before have arrived."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@asynccontextmanager
async def replica(shared: SharedMemory, shop: Shop, **more: Any) -> AsyncIterator[Replica]:
    view = shared.replica()
    async with guarded(shop, store=view, **more) as process:
        yield Replica(process, view)


async def test_drift_found_by_one_is_refused_by_all() -> None:
    """A call on another replica is judged anew, although the time to live of what it knew is not over."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with replica(shared, shop) as one, replica(shared, shop) as other:
        here, there = await one.process.open(), await other.process.open()
        await one.process.list(here)
        await other.process.call(there, "click")
        shop.tools = [EVIL]
        with pytest.raises(Refused):
            await one.process.list(here)
        await heard()
        with pytest.raises(CatalogueDrifted):
            await other.process.call(there, "click")
    assert shop.calls == ["click"]


async def test_drift_counts_where_the_word_is_lost() -> None:
    """A replica that may have missed words reads the row again before it trusts a verdict."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with replica(shared, shop) as one, replica(shared, shop) as other:
        here, there = await one.process.open(), await other.process.open()
        await one.process.list(here)
        await other.process.call(there, "click")
        other.view.deaf = True
        shop.tools = [EVIL]
        with pytest.raises(Refused):
            await one.process.list(here)
        other.view.unsure()
        with pytest.raises(CatalogueDrifted):
            await other.process.call(there, "click")


async def test_doubts_cost_one_look_and_no_list() -> None:
    """Rows that are as they were make the verdict good again, and the upstream is not asked."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with replica(shared, shop) as one:
        session = await one.process.open()
        await one.process.call(session, "click")
        lists = shop.lists
        one.view.unsure()
        assert not one.process.tool_guard.skips("any", "click") and not one.cache.is_confirmed
        asked: list[str] = []

        async def note(table: str, key: str) -> None:
            asked.append(table)

        one.view.before = note
        await asyncio.gather(*(one.process.call(session, "click") for _ in range(5)))
        assert one.cache.is_confirmed and shop.lists == lists
        await one.process.call(session, "click")
        assert sorted(table for table in asked if table != "sessions") == sorted([BASELINES, SEEN])


async def test_doubts_that_cannot_be_settled_refuse_calls() -> None:
    """While the rows cannot be read nothing is judged by what was known before."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with replica(shared, shop) as one:
        session = await one.process.open()
        await one.process.call(session, "click")
        one.view.unsure()
        one.view.down = True
        with pytest.raises(StoreUnavailable):
            await one.process.call(session, "click")
        one.view.down = False
        await one.process.call(session, "click")
    assert shop.calls == ["click", "click"]


@pytest.mark.parametrize("hears", [True, False], ids=["by word", "by time"])
async def test_what_is_accepted_on_one_counts_on_all(hears: bool) -> None:
    """An operator's word ends refusals everywhere, and no replica waits for its own look-up to grow old."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with (
        replica(shared, shop, invalidate=False) as one,
        replica(shared, shop, invalidate=False) as other,
    ):
        there = await other.process.open()
        await other.process.list(there)
        shop.tools = [CLICK, SHOOT]
        with pytest.raises(Refused):
            await other.process.list(there)
        other.view.deaf = not hears
        status = await one.review.status()
        assert status.now is not None and status.remembered is not None
        assert (await one.review.accept(status.now.digest, "eva")).accepted
        await heard()
        if not hears:
            other.view.unsure()
        assert len(await other.process.list(there)) == 2
        assert await other.review.remembered() is None


async def test_list_changed_on_one_is_heard_by_all() -> None:
    """The stream of a session may be on another replica than its calls, so the word of its upstream is passed on."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with replica(shared, shop) as one, replica(shared, shop) as other:
        there = await other.process.open()
        await other.process.call(there, "click")
        shop.tools = [EVIL]
        one.process.tool_guard.listener()(LIST_CHANGED)
        await heard()
        with pytest.raises(CatalogueDrifted):
            await other.process.call(there, "click")


async def test_servers_that_offer_each_replica_other_tools_come_to_rest() -> None:
    """Replicas that see different tools read their lists once for each change, and not for each word of the other."""
    shared, here, there = SharedMemory(), Shop(CLICK), Shop(SHOOT)
    async with replica(shared, here, mode="warn") as one, replica(shared, there, mode="warn") as other:
        first, second = await one.process.open(), await other.process.open()
        for _ in range(10):
            await one.process.list(first)
            await other.process.list(second)
            await one.process.call(first, "click")
            await other.process.call(second, "shoot")
            await one.process.idle()
            await other.process.idle()
            await heard()
        # Each client's own list is one; the adapter adds one for the other's tools.
        assert here.lists <= 12 and there.lists <= 12


async def test_tools_that_come_back_are_met_again() -> None:
    """A replica that has seen other tools itself reads the list again each time they come and go elsewhere."""
    shared, shop = SharedMemory(), Shop(CLICK)
    async with replica(shared, shop, subset=True) as one, replica(shared, shop, subset=True) as other:
        here, there = await one.process.open(), await other.process.open()
        await one.process.list(here)
        await other.process.call(there, "click")
        for _ in range(3):
            shop.tools = [EVIL]
            await one.process.list(here)
            await heard()
            with pytest.raises(CatalogueDrifted):
                await other.process.call(there, "click")
            shop.tools = [CLICK]
            await one.process.list(here)
            await heard()
            await other.process.call(there, "click")


async def test_removed_pin_is_not_used_elsewhere() -> None:
    """A scope whose pin another replica removed is pinned anew, to what it is offered then."""
    shared, clock = SharedMemory(), Clock()
    async with replica(shared, Shop(CLICK), clock=clock) as one, replica(shared, Shop(CLICK)) as other:
        scope = Scope("scope", "token:eva")
        session = await one.process.open()
        await one.process.list(session)
        seen = await one.process.baselines.last_seen()
        assert seen is not None
        await one.process.baselines.pin(scope, seen)
        await other.process.baselines.pin_of(scope.id)
        assert other.cache.pins.get(scope.id) is not None
        await one.process.baselines.forget(scope.id)
        await heard()
        assert (
            other.cache.pins.get(scope.id) is None and await other.process.baselines.pin_of(scope.id) is None
        )


async def test_pin_of_another_replica_is_removed_with_its_session() -> None:
    """The replica on which a session ends removes its pin, also one that it never read."""
    shared = SharedMemory()
    async with replica(shared, Shop(CLICK)) as one, replica(shared, Shop(CLICK)) as other:
        session = await one.process.open()
        await one.process.list(session)
        (row,) = await shared.rows.scan(PINS)
        await other.process.baselines.forget(row.key.rpartition("/")[2], unknown=other.view.shared)
        assert not await shared.rows.scan(PINS)


async def test_pins_are_in_doubt_with_everything_else() -> None:
    """A pin that was read before words may have been missed is read again."""
    shared = SharedMemory()
    async with replica(shared, Shop(CLICK)) as one:
        session = await one.process.open()
        await one.process.list(session)
        (scope_id,) = one.cache.pins
        assert one.cache.pins.get(scope_id) is not None
        one.view.unsure()
        assert one.cache.pins.get(scope_id) is None
        assert await one.process.baselines.pin_of(scope_id) is not None
        assert one.cache.pins.get(scope_id) is not None


async def test_words_about_others_are_not_ours() -> None:
    """Rows of other servers and tables, and other topics, change nothing; unpinned servers are never in doubt."""
    cache, unpinned = CatalogueCache(60, Clock()), CatalogueCache(60, Clock())
    listener = CatalogueListener({"one": cache, "two": unpinned}, {"one": cache})
    assert "2 servers" in repr(listener)
    for table, key in ((SEEN, "two"), (PINS, "two/scope"), ("drifts", "two"), ("sessions", "one")):
        listener.row_changed(table, key)
    listener.announced("another topic", b"one/tools")
    listener.announced(CHANGED, b"one/prompts")
    listener.announced(CHANGED, b"three/tools")
    assert cache.is_confirmed and cache.epoch == 0
    listener.rows_unknown()
    assert not cache.is_confirmed and unpinned.is_confirmed
    listener.announced(CHANGED, b"two/tools")
    assert unpinned.epoch == 1


class HeardWords(MemoryStore):
    """Keeps what is announced; ``said`` is set with the second word."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[tuple[str, bytes]] = []
        self.second = asyncio.Event()

    def announce(self, topic: str, body: bytes) -> None:
        """See Store."""
        self.words.append((topic, body))
        if len(self.words) == 2:
            self.second.set()


async def test_an_upstream_that_never_stops_is_passed_on_slowly() -> None:
    """The first word goes out at once, and all that come in the pause behind it are one."""
    store = HeardWords()
    tell = CatalogueTeller(store, "one")
    for _ in range(1000):
        tell()
    assert store.words == [(CHANGED, b"one/tools")] and "one" in repr(tell)
    async with asyncio.timeout(PACE + 5):
        await store.second.wait()
    assert store.words == [(CHANGED, b"one/tools")] * 2
