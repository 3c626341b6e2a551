"""A store that loses its data: every replica notices, and all agree again on what they have in common."""

from __future__ import annotations

import asyncio

import pytest
from structlog import get_logger
from structlog.testing import capture_logs

from adapter.errors import StoreUnavailable
from adapter.relay.files.scopes import SECRETS, kept_secret
from adapter.relay.replicas.registry import EPOCH_TABLE, KEY, StoreEpoch
from adapter.state.sqlite import MemoryStore
from tests.state.shared import ReplicaStore, SharedMemory


class Process:
    """A replica with a secret that all have in common."""

    def __init__(self, memory: SharedMemory) -> None:
        self.store: ReplicaStore = memory.replica()
        self.epoch = StoreEpoch(self.store, lambda: 1_000.0, get_logger())
        self.epoch.shared.append(self.read)
        self.secret: bytes | None = None

    async def read(self) -> None:
        self.secret = await kept_secret(self.store, "common", self.secret)


async def test_every_replica_notices_once(memory: SharedMemory) -> None:
    """Also those that look when another one has written the row anew; a row that is there is no loss."""
    processes = [Process(memory) for _ in range(3)]
    for _ in range(2):
        for each in processes:
            await each.epoch.look()
    assert [each.epoch.losses for each in processes] == [0, 0, 0]
    memory.rows = MemoryStore()
    with capture_logs() as logs:
        for each in (*processes, *processes):
            await each.epoch.look()
    assert [(each.epoch.losses, each.epoch.last_loss) for each in processes] == [(1, 1_000.0)] * 3
    assert [entry["event"] for entry in logs] == ["the state store has lost its data"] * 3


async def test_the_store_gets_its_secrets_back(memory: SharedMemory) -> None:
    """From whoever holds them, so that links that people have go on to count; a new replica takes them over."""
    one, two = Process(memory), Process(memory)
    await asyncio.gather(one.epoch.look(), two.epoch.look())
    before = one.secret
    assert before is not None and two.secret == before
    memory.rows = MemoryStore()
    await two.epoch.look()
    three = Process(memory)
    await three.epoch.look()
    await one.epoch.look()
    assert [each.secret for each in (one, two, three)] == [before] * 3


async def test_a_secret_that_the_store_has_counts(memory: SharedMemory) -> None:
    """Another store is behind the address, or a replica that began after the loss was first: all take its secret."""
    one, two = Process(memory), Process(memory)
    await asyncio.gather(one.epoch.look(), two.epoch.look())
    memory.rows = MemoryStore()
    late = Process(memory)
    await late.epoch.look()
    assert late.secret != one.secret
    await asyncio.gather(one.epoch.look(), two.epoch.look())
    assert one.secret == two.secret == late.secret


async def test_a_secret_that_is_lost_alone_comes_back(memory: SharedMemory) -> None:
    """A node of a cluster that fails loses some of the rows."""
    one = Process(memory)
    await one.epoch.look()
    await memory.rows.delete(SECRETS, "common")
    await one.epoch.look()
    assert one.epoch.losses == 0
    row = await memory.rows.get(SECRETS, "common")
    assert row is not None and row.value == one.secret


async def test_a_loss_is_told_when_all_is_read(memory: SharedMemory) -> None:
    """A store that fails in the middle is looked at again, and the loss is told then, once."""
    one = Process(memory)
    await one.epoch.look()
    memory.rows = MemoryStore()

    async def fail(table: str, key: str) -> None:
        if table == SECRETS:
            raise StoreUnavailable

    one.store.before = fail
    with pytest.raises(StoreUnavailable):
        await one.epoch.look()
    one.store.before = None
    assert one.epoch.losses == 0
    await one.epoch.look()
    await one.epoch.look()
    assert one.epoch.losses == 1


async def test_who_cannot_forget_keeps_nobody_from_it(memory: SharedMemory) -> None:
    """A listener that fails is logged, and the others hear of the loss all the same."""
    one = Process(memory)
    heard: list[bool] = []

    def fail() -> None:
        raise KeyError

    one.epoch.on_loss += [fail, lambda: heard.append(True)]
    await one.epoch.look()
    memory.rows = MemoryStore()
    await one.epoch.look()
    assert (heard, one.epoch.losses) == ([True], 1)


async def test_words_that_were_missed_are_a_reason_to_look(memory: SharedMemory) -> None:
    """A connection that broke may lead to another store: nobody waits for the next round."""
    one = Process(memory)
    noticed = asyncio.Event()
    one.epoch.on_loss.append(noticed.set)
    running = asyncio.create_task(one.epoch.run())
    async with asyncio.timeout(20):
        while await memory.rows.get(EPOCH_TABLE, KEY) is None:
            await asyncio.sleep(0)
    one.store.down = True
    memory.rows = MemoryStore()
    one.store.unsure()
    one.store.down = False
    one.store.unsure()
    async with asyncio.timeout(8):
        await noticed.wait()
    running.cancel()
