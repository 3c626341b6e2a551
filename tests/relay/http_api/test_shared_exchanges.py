"""Exchanges of other replicas: told while somebody watches, to those who may see them, and never kept; their counts are
told when somebody asks, and left out when they are old or cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from adapter.relay.background import BackgroundTasks
from adapter.relay.http_api.recent_exchanges import WATCHERS, Recent, Subscription
from adapter.relay.http_api.shared_exchanges import (
    COUNTS_BEAT,
    COUNTS_FRESH,
    ENDED,
    FRESH,
    LARGEST,
    MOST_REPLICAS,
    TOLD,
    WATCHED,
    SharedExchanges,
)
from adapter.state.port import StoreListener
from adapter.wire.envelope import dump
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until

NOW = 6000.0


def line(number: int = 1, name: str = "click") -> dict[str, Any]:
    return {
        "at": 1.0,
        "server": "one",
        "http": "POST",
        "method": "tools/call",
        "name": name,
        "status": 200,
        "outcome": "ok",
        "ms": float(number),
    }


class Replica(StoreListener):
    """A replica with its exchanges, and the words that it says."""

    def __init__(self, memory: SharedMemory, name: str) -> None:
        self.store: ReplicaStore = memory.replica()
        self.recent = Recent()
        self.clock = Clock()
        self.background = BackgroundTasks()
        self.shared = SharedExchanges(self.recent, self.store, self.background, name, self.clock, lambda: NOW)
        self.heard: list[tuple[str, bytes]] = []
        self.store.listeners.append(self)

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        self.heard.append((topic, body))

    def counts(self, *, failed: bool = False) -> None:
        """Count a call that ended just now."""
        self.recent.counts.count(NOW, is_call=True, failed=failed)

    async def is_told(self) -> None:
        """Wait until it tells others of its exchanges."""
        await until(lambda: self.recent._tellers, 10)


Pair = tuple[Replica, Replica]


@pytest.fixture
async def replicas() -> AsyncIterator[Pair]:
    """Two replicas that share a store."""
    memory = SharedMemory()
    pair = Replica(memory, "one"), Replica(memory, "other")
    yield pair
    for replica in pair:
        replica.recent.close()
        await replica.background.close()


async def news_of(watcher: Subscription) -> list[Any]:
    news = await watcher.next_news(10.0)
    assert news is not None
    return [exchange.shown() for exchange in news.exchanges]


async def test_exchange_of_another_replica_is_seen_while_somebody_watches(replicas: Pair) -> None:
    """It comes with its replica's name and its times, to those alone who may see it."""
    one, other = replicas
    other.recent.end(line(1), "token:eva")
    everybody, bob = one.recent.subscribe(), one.recent.subscribe("token:bob")
    await other.is_told()
    other.recent.begin()
    other.recent.end(line(2), "token:eva")
    (seen,) = await news_of(everybody)
    assert seen["ms"] == 2.0 and seen["replica"] == "other" and seen["tool"] == "click"
    assert "principal" not in seen and not bob._waiting
    assert one.recent.last() == [] and "'other': watched" in repr(other.shared)


async def test_nothing_is_told_where_nobody_watches(replicas: Pair) -> None:
    """Exchanges end without a word, and words of others about theirs are not looked at."""
    one, other = replicas
    one.recent.end(line(), None)
    await asyncio.sleep(0)
    assert other.heard == [] and not one.recent._tellers
    other.shared.announced(ENDED, b"not even JSON")
    assert "not watched" in repr(other.shared)


async def test_telling_ends_with_the_last_word_of_a_viewer(replicas: Pair) -> None:
    """A viewer that goes away says nothing; after some time without its word nothing more is told."""
    one, other = replicas
    other.shared.announced(WATCHED, b"")
    await other.is_told()
    other.clock.now += FRESH + 1
    other.recent.end(line(), None)
    await until(lambda: not (other.recent._tellers))
    assert [topic for topic, _ in one.heard] in ([], [ENDED])


async def test_words_are_bounded_and_foreign_ones_are_passed_over(replicas: Pair) -> None:
    """Of too many exchanges at once the newest are told; what another version wrote shows nothing."""
    one, other = replicas
    watcher = one.recent.subscribe()
    await other.is_told()
    for number in range(250):
        other.recent.end(line(number, "x" * 128), "token:" + "e" * 300)
    seen = await news_of(watcher)
    (body,) = [body for topic, body in one.heard if topic == ENDED]
    assert len(body) <= LARGEST + 100 and seen[-1]["ms"] == 249.0 and 50 < len(seen) < 250
    for foreign in (b"{", b"[]", b'["x",[1]]', orjson.dumps({"a": 1})):
        one.shared.announced(ENDED, foreign)
    assert not watcher._waiting


async def test_name_that_utf8_cannot_hold_is_told(replicas: Pair) -> None:
    """A client may call a tool by any text of JSON; those who watch see that exchange, and all later ones."""
    one, other = replicas
    watcher = one.recent.subscribe()
    await other.is_told()
    other.recent.end(line(1, "\ud800"), None)
    (odd,) = await news_of(watcher)
    other.recent.end(line(2), None)
    (seen,) = await news_of(watcher)
    assert odd["tool"] == "\ud800" and seen["tool"] == "click"


async def test_replica_with_many_viewers_tells_nobody(replicas: Pair) -> None:
    """Where as many watch as may, others are not told, and nothing breaks."""
    replica, _ = replicas
    for _ in range(WATCHERS):
        replica.recent.subscribe()
    replica.shared.announced(WATCHED, b"")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not replica.recent._tellers


async def test_a_call_keeps_the_id_that_its_caller_gave_it(replicas: Pair) -> None:
    """For its caller alone; words of replicas that know of no such ids are read too."""
    one, other = replicas
    eva = one.recent.subscribe("token:eva")
    await other.is_told()
    other.recent.end({**line(1), "call": "call-1"}, "token:eva")
    news = await eva.next_news(10.0)
    assert news is not None
    (exchange,) = news.exchanges
    assert (exchange.shown("token:eva")["own"], exchange.shown("token:eva")["call"]) == (True, "call-1")
    assert exchange.shown("token:bob")["own"] is False and "call" not in exchange.shown("token:bob")
    fields = [1.0, "one", "tools/call", "click", "mcp", "ok", 200, 2.0, [], "token:eva"]
    one.shared.announced(ENDED, orjson.dumps(["other", fields]))
    older = await eva.next_news(10.0)
    assert older is not None and older.exchanges[0].call is None and older.exchanges[0].replica == "other"


# --- counts ---------------------------------------------------------------------------------------------------


async def test_a_replica_tells_its_counts_when_another_asks(replicas: Pair) -> None:
    """At the first look, and again when that is no longer new; of itself it tells nothing."""
    one, other = replicas
    other.counts()
    assert one.shared._counts == {}
    assert await one.shared.counts_of_others(["other"]) == {"other": [(100, 1, 0, 0)]}
    other.counts(failed=True)
    assert await one.shared.counts_of_others(["other"]) == {"other": [(100, 1, 0, 0)]}
    for each in (one, other):
        each.clock.now += COUNTS_BEAT
    assert await one.shared.counts_of_others(["other"]) == {"other": [(100, 2, 0, 1)]}


async def test_a_replica_that_tells_no_more_is_left_out(replicas: Pair) -> None:
    """It is waited for, but not long."""
    one, other = replicas
    assert await one.shared.counts_of_others(["other"]) == {"other": []}
    other.store.listeners.clear()
    one.clock.now += COUNTS_FRESH + 1
    assert await one.shared.counts_of_others(["other"]) == {}


async def test_what_no_replica_of_this_version_wrote_is_passed_over(replicas: Pair) -> None:
    """And no more replicas are kept than anybody has."""
    one, _ = replicas
    for body in (
        b"",
        b"[]",
        b"{}",
        b"[1]",
        b'["other", [1]]',
        b'["other", [1, 2, 3, "4"]]',
        dump(["x"] * 999),
    ):
        one.shared.announced(TOLD, body)
    one.shared.announced("another topic", b"")
    assert one.shared._counts == {}
    for number in range(MOST_REPLICAS + 10):
        one.shared.announced(TOLD, dump([f"r{number}", [100, 1, 1, 1]]))
    assert len(one.shared._counts) == MOST_REPLICAS
