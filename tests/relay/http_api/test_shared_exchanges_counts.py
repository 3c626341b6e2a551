"""Counts of other replicas: told when somebody asks, and left out when they are old or cannot be read."""

from __future__ import annotations

import asyncio

from adapter.relay.background import BackgroundTasks
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.relay.http_api.shared_exchanges import (
    COUNTS_BEAT,
    COUNTS_FRESH,
    MOST_REPLICAS,
    TOLD,
    SharedExchanges,
)
from adapter.wire.envelope import dump
from tests.relay.relaying import Clock
from tests.state.shared import SharedMemory

NOW = 6000.0


class Counting:
    """A replica that counts."""

    def __init__(self, memory: SharedMemory, name: str) -> None:
        self.store = memory.replica()
        self.recent = Recent()
        self.now = Clock()
        self.shared = SharedExchanges(self.recent, self.store, BackgroundTasks(), name, self.now, lambda: NOW)

    def ends(self, *, failed: bool = False) -> None:
        self.recent.counts.count(NOW, is_call=True, failed=failed)


async def test_a_replica_tells_its_counts_when_another_asks() -> None:
    """At the first look, and again when that is no longer new; of itself it tells nothing."""
    memory = SharedMemory()
    one, other = Counting(memory, "one"), Counting(memory, "other")
    other.ends()
    assert one.shared._counts == {}
    assert await one.shared.counts_of_others(["other"]) == {"other": [(100, 1, 0, 0)]}
    other.ends(failed=True)
    assert await one.shared.counts_of_others(["other"]) == {"other": [(100, 1, 0, 0)]}
    for each in (one, other):
        each.now.now += COUNTS_BEAT
    assert await one.shared.counts_of_others(["other"]) == {"other": [(100, 2, 0, 1)]}
    one.shared.row_changed("t", "k")
    one.shared.rows_unknown()


async def test_a_replica_that_tells_no_more_is_left_out() -> None:
    """It is waited for, but not long."""
    memory = SharedMemory()
    one, other = Counting(memory, "one"), Counting(memory, "other")
    assert await one.shared.counts_of_others(["other"]) == {"other": []}
    other.store.listeners.clear()
    one.now.now += COUNTS_FRESH + 1
    assert await one.shared.counts_of_others(["other"]) == {}


async def test_what_no_replica_of_this_version_wrote_is_passed_over() -> None:
    """And no more replicas are kept than anybody has."""
    memory = SharedMemory()
    one = Counting(memory, "one")
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
    await asyncio.sleep(0)
