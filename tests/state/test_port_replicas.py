"""The store of tests that several replicas share: it is as late, as deaf and as unreliable as a real one can be."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import StoreUnavailable
from tests.state.shared import ReplicaStore, SharedMemory


class Words:
    """Notes the words of a store."""

    def __init__(self, store: ReplicaStore) -> None:
        self.heard: list[object] = []
        store.listeners.append(self)

    def row_changed(self, table: str, key: str) -> None:
        self.heard.append((table, key))

    def rows_unknown(self) -> None:
        self.heard.append("unknown")

    def announced(self, topic: str, body: bytes) -> None:
        self.heard.append((topic, body))


async def test_words_of_a_write_come_to_the_others_a_turn_later() -> None:
    """The writer hears nothing of its own, unless the memory echoes."""
    for echoes in (False, True):
        memory = SharedMemory(echoes=echoes)
        one, two = memory.replica(), memory.replica()
        of_one, of_two = Words(one), Words(two)
        await one.put("sessions", "a", b"")
        one.announce("topic", b"body")
        assert of_two.heard == []
        await asyncio.sleep(0)
        assert of_two.heard == [("sessions", "a"), ("topic", b"body")]
        assert of_one.heard == (of_two.heard if echoes else [])
        assert await two.get("sessions", "a") is not None


async def test_deaf_replica_hears_nothing_but_that_it_may_have_missed_something() -> None:
    """Its reads are as good as any."""
    memory = SharedMemory()
    one, two = memory.replica(), memory.replica()
    words = Words(two)
    two.deaf = True
    await one.put("sessions", "a", b"")
    await asyncio.sleep(0)
    two.unsure()
    assert words.heard == ["unknown"]


async def test_store_fails_in_both_ways() -> None:
    """Nothing was done, or all of it."""
    memory = SharedMemory()
    one, two = memory.replica(), memory.replica()
    one.down, two.swallows = True, 1
    for store, done in ((one, False), (two, True)):
        with pytest.raises(StoreUnavailable):
            await store.put("sessions", "a", b"")
        assert (await memory.rows.get("sessions", "a") is not None) is done
