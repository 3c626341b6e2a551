"""The registry of replicas: rows that are renewed, replicas that stop or fall silent, and ids that two have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from structlog import get_logger

from adapter.errors import StoreUnavailable
from adapter.relay.replicas.registry import EPOCH_TABLE as EPOCH
from adapter.relay.replicas.registry import TABLE, Replicas, ReplicaTimes, replica_id
from adapter.rules.access.replicas import decode_replica
from adapter.state.fallback import FallbackStore
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until

NEVER = ReplicaTimes(interval=3600.0, looks=2)
"""Rows are renewed and looked at by the tests themselves."""

AT_ONCE = ReplicaTimes(interval=3600.0, looks=2, lease=0.0)
"""Whoever stood still at two looks has gone."""


class Registry:
    """Makes registries over one store, which are closed in the end."""

    def __init__(self, memory: SharedMemory, stack: AsyncExitStack) -> None:
        self._memory = memory
        self._stack = stack

    def make(self, name: str, terms: ReplicaTimes = NEVER) -> Replicas:
        made = Replicas(self._memory.replica(), name, "1.0", lambda: 1_000.0, get_logger(), terms)
        self._stack.push_async_callback(made.close)
        return made

    async def join(self, name: str, terms: ReplicaTimes = NEVER, at: str | None = None) -> Replicas:
        made = self.make(name, terms)
        await made.join(at or f"http://{name}")
        return made


@pytest.fixture
async def registry(memory: SharedMemory) -> AsyncIterator[Registry]:
    """Replicas of one store."""
    async with AsyncExitStack() as stack:
        yield Registry(memory, stack)


def view(replicas: Replicas) -> ReplicaStore:
    """The store of a replica, to make it fail."""
    assert isinstance(replicas.store, ReplicaStore)
    return replicas.store


def displacements(replicas: Replicas) -> list[str]:
    """The ids under which a replica was displaced, from now on."""
    displaced: list[str] = []
    replicas.on_displaced.append(lambda: displaced.append(replicas.id))
    return displaced


async def row_of(memory: SharedMemory, name: str) -> Row:
    row = await memory.rows.get(TABLE, name)
    assert row is not None
    return row


async def test_replicas_see_each_other(memory: SharedMemory, registry: Registry) -> None:
    """Each sees the others with their addresses, and not itself."""
    a = await registry.join("a")
    b = await registry.join("b", at="http://10.0.0.2:2")
    await a.look()
    assert [(each.id, each.record.address) for each in a.others()] == [("b", "http://10.0.0.2:2")]
    assert [each.id for each in b.others()] == ["a"]
    found = await b.find("a")
    assert found is not None
    assert (found.version, found.started, found.leaving) == ("1.0", 1_000.0, False)
    await a.close()
    await b.close()
    assert await memory.rows.scan(TABLE) == []


async def test_a_replica_that_has_gone_is_told_of_though_the_store_fails(registry: Registry) -> None:
    """In the middle of a look, where another one is to lose its row: nobody would learn of the first at a later one."""
    a = await registry.join("a", AT_ONCE)
    others = [await registry.join(name) for name in "bc"]
    gone: list[str] = []
    a.on_gone.append(gone.append)
    for _ in range(AT_ONCE.looks):
        await a.look()
    await others[0].close()

    async def fail(table: str, key: str) -> None:
        if key == "c":
            raise StoreUnavailable()

    view(a).before = fail
    with pytest.raises(StoreUnavailable):
        await a.look()
    view(a).before = None
    await a.look()
    assert sorted(gone) == ["b", "c"]


async def test_many_replicas_are_all_seen(memory: SharedMemory, registry: Registry) -> None:
    """Rows are read page by page."""
    a = await registry.join("a")
    value = (await row_of(memory, "a")).value
    for number in range(1001):
        await memory.rows.put(TABLE, f"r{number}", value)
    await memory.rows.put(TABLE, "unreadable", b"{}")
    await a.look()
    assert len(a.others()) == 1001


async def test_a_replica_that_is_not_known_yet_is_read(memory: SharedMemory, registry: Registry) -> None:
    """One that joined after the last look is found; one that never did is not, and neither is what is no id."""
    a, _ = await registry.join("a"), await registry.join("b")
    before = view(a).calls["get"]
    assert await a.find("b") is not None
    assert await a.find("b") is not None
    assert view(a).calls["get"] == before + 1
    assert await a.find("c") is None
    assert await a.find("no/id") is None
    assert await a.find("a") is None
    await memory.rows.put(TABLE, "d", b"{}")
    assert await a.find("d") is None


async def test_a_replica_whose_row_is_missed_has_gone(registry: Registry) -> None:
    """Whoever looks for it learns it first, and tells as at any look."""
    a, b = await registry.join("a"), await registry.join("b")
    gone: list[str] = []
    b.on_gone.append(gone.append)
    await a.close()
    assert await b.find("a") is not None
    assert gone == []
    assert await b.find("a", afresh=True) is None
    assert gone == ["a"]


async def test_a_replica_at_this_address_was_here_before(registry: Registry) -> None:
    """It ended without a word, and this one was started in its place under another id."""
    await registry.join("a", at="http://here")
    after = await registry.join("b", at="http://here")
    assert await after.find("a") is None


async def test_a_replica_that_leaves_is_found_no_more(registry: Registry) -> None:
    """It takes no requests while it finishes what it has."""
    a, b = await registry.join("a"), registry.make("b")
    await b.leave()
    await b.join("http://b")
    await a.look()
    assert await a.find("b") is None
    assert [each.record.leaving for each in a.others()] == [True]


async def test_each_renewal_has_another_challenge_that_counts(
    memory: SharedMemory, registry: Registry
) -> None:
    """The challenge of a row counts as soon as it can be read."""
    a = await registry.join("a")
    first = decode_replica((await row_of(memory, "a")).value).challenge
    await a.renew()
    second = decode_replica((await row_of(memory, "a")).value).challenge
    assert first != second
    assert a.challenges.refusal(first, "n") is a.challenges.refusal(second, "n") is None


async def test_a_challenge_goes_on_to_count_while_the_store_is_away(
    memory: SharedMemory, registry: Registry
) -> None:
    """Others cannot read a newer one, however often this one tries to write it."""
    a = await registry.join("a")
    store = view(a)
    known = decode_replica((await row_of(memory, "a")).value).challenge
    store.down = True
    for _ in range(50):
        with pytest.raises(StoreUnavailable):
            await a.renew()
    assert a.challenges.refusal(known, "n") is None
    store.down = False
    await a.renew()


async def test_a_write_that_seemed_to_fail_is_no_reason_to_leave(
    memory: SharedMemory, registry: Registry
) -> None:
    """The row was renewed all the same: the replica goes on under its id, and keeps its sessions."""
    a = await registry.join("a")
    store, displaced = view(a), displacements(a)
    store.swallows = 1
    with pytest.raises(StoreUnavailable):
        await a.renew()
    await a.renew()
    assert (a.id, displaced) == ("a", [])
    store.swallows = 1
    with pytest.raises(StoreUnavailable):
        await a.renew()
    await a.close()
    assert await memory.rows.get(TABLE, "a") is None


async def test_a_silent_replica_loses_its_row(registry: Registry) -> None:
    """All others are told once, whoever of them deleted it."""
    _, b, c = [await registry.join(name, AT_ONCE) for name in "abc"]
    gone: dict[str, list[str]] = {"b": [], "c": []}
    b.on_gone.append(gone["b"].append)
    c.on_gone.append(gone["c"].append)
    for _ in range(3):
        await b.renew()
        await c.renew()
        await b.look()
        await c.look()
    assert gone == {"b": ["a"], "c": ["a"]}
    assert await b.find("a") is None
    assert [each.id for each in b.others()] == ["c"]


async def test_a_replica_that_was_only_slow_learns_what_happened(
    memory: SharedMemory, registry: Registry
) -> None:
    """Its sessions may live elsewhere: it lets go of them, and joins again under its id."""
    a = await registry.join("a")
    displaced = displacements(a)
    await memory.rows.delete(TABLE, "a")
    await a.renew()
    assert displaced == ["a"]
    assert decode_replica((await row_of(memory, "a")).value).address == "http://a"
    await a.renew()
    assert displaced == ["a"]


async def test_a_renewal_just_in_time_keeps_the_row(memory: SharedMemory, registry: Registry) -> None:
    """Who decides that a replica has gone deletes the row as it stood still, so one of the two is told."""
    a, b = await registry.join("a"), await registry.join("b", AT_ONCE)
    store = view(b)

    async def meanwhile(table: str, key: str) -> None:
        if (table, key) == (TABLE, "a"):
            store.before = None
            await a.renew()

    await b.look()
    store.before = meanwhile
    await b.look()
    assert store.calls["delete"] == 1
    assert await b.find("a") is not None
    assert await memory.rows.get(TABLE, "a") is not None


async def test_of_two_with_one_id_the_later_has_it(memory: SharedMemory, registry: Registry) -> None:
    """A replica that comes back after a crash is not kept waiting; one that is still there takes another id."""
    first, second = [await registry.join("a", at=f"http://{number}") for number in (1, 2)]
    displaced = displacements(first)
    await first.renew()
    assert first.id.startswith("a-")
    assert displaced == [first.id]
    assert decode_replica((await row_of(memory, "a")).value).address == "http://2"
    assert decode_replica((await row_of(memory, first.id)).value).address == "http://1"
    await second.renew()
    assert second.id == "a"


async def test_a_row_that_another_took_is_left_to_it(memory: SharedMemory, registry: Registry) -> None:
    """Who stops removes its own row only."""
    first, _ = [await registry.join("a", at=f"http://{number}") for number in (1, 2)]
    await first.close()
    assert decode_replica((await row_of(memory, "a")).value).address == "http://2"


async def test_the_store_may_be_away_at_a_stop(memory: SharedMemory, registry: Registry) -> None:
    """The others notice the silence."""
    a = await registry.join("a")
    view(a).down = True
    await a.leave()
    await a.close()
    assert await memory.rows.get(TABLE, "a") is not None


async def test_rows_are_renewed_by_themselves(memory: SharedMemory, registry: Registry) -> None:
    """The versions count up while nobody does anything, also after the store was away."""
    store = view(await registry.join("a", ReplicaTimes(interval=0.001, looks=10_000)))
    async with asyncio.timeout(20):
        store.down = True
        await until(lambda: store.calls["put"] >= 5)
        store.down = False
        before = (await row_of(memory, "a")).version
        while (await row_of(memory, "a")).version < before + 3:
            await asyncio.sleep(0.001)


def test_ids_differ() -> None:
    """Two processes never have one by chance."""
    assert len({replica_id() for _ in range(100)}) == 100


async def test_nobody_is_gone_for_a_replica_that_goes_on_in_memory(memory: SharedMemory) -> None:
    """There the rows of all others stand still; when the store is back, all replicas are there, with their sessions."""
    stores = {name: memory.replica() for name in ("a", "b")}
    falling = {name: FallbackStore(store, get_logger(), retry=3600.0) for name, store in stores.items()}
    a, b = (
        Replicas(store, name, "1.0", lambda: 1_000.0, get_logger(), AT_ONCE)
        for name, store in falling.items()
    )
    displaced = displacements(a)
    await a.join("http://a")
    await b.join("http://b")
    await a.look()
    stores["a"].down = stores["b"].down = True
    for _ in range(4):
        for each in (a, b):
            with pytest.raises(StoreUnavailable):
                await each.beat()
    assert [each.id for each in b.others()] == ["a"]
    stores["a"].down = stores["b"].down = False
    await falling["b"].close()
    await falling["a"].close()
    assert {row.key for row in await memory.rows.scan(TABLE)} == {"a", "b"}
    assert displaced == []


async def test_a_row_that_the_store_has_lost_is_written_again(
    memory: SharedMemory, registry: Registry
) -> None:
    """It is no sign that others took the replica for gone: its sessions go on."""
    a = await registry.join("a")
    displaced = displacements(a)
    await a.epoch.look()
    memory.rows = MemoryStore()
    await asyncio.gather(a.beat(), a.renew())
    assert (await row_of(memory, "a")).version == 2
    assert (displaced, a.epoch.losses) == ([], 1)
    await memory.rows.delete(TABLE, "a")
    await a.beat()
    assert (displaced, a.epoch.losses) == (["a"], 1)


async def test_an_older_state_of_the_store_is_a_loss(memory: SharedMemory, registry: Registry) -> None:
    """A backup is back, with the epoch of then: the row tells, for its version went back."""
    a = await registry.join("a")
    await a.epoch.look()
    backup = [(table, row) for table in (TABLE, EPOCH) for row in await memory.rows.scan(table)]
    await a.renew()
    memory.rows = MemoryStore()
    for table, row in backup:
        await memory.rows.put(table, row.key, row.value)
    await a.renew()
    await a.renew()
    assert a.epoch.losses == 1


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_row_that_cannot_be_written_again_at_once_is_one_loss(
    is_done: bool, memory: SharedMemory, registry: Registry
) -> None:
    """Neither does the next attempt take the replica for displaced, nor its own row for an older state."""
    a = await registry.join("a")
    store, displaced = view(a), displacements(a)
    await a.renew()
    await a.epoch.look()
    memory.rows = MemoryStore()
    await a.epoch.look()

    async def fail(table: str, key: str) -> None:
        if table == TABLE and store.calls["put"] == puts + 2:
            store.swallows = int(is_done)
            if not is_done:
                raise StoreUnavailable

    puts, store.before = store.calls["put"], fail
    with pytest.raises(StoreUnavailable):
        await a.renew()
    store.before = None
    await a.renew()
    assert (displaced, a.epoch.losses) == ([], 1)
    await memory.rows.delete(TABLE, "a")
    await a.renew()
    assert (displaced, a.epoch.losses) == (["a"], 1)


async def test_a_replica_that_is_closed_while_it_comes_back_leaves_no_row(
    memory: SharedMemory, registry: Registry
) -> None:
    """Nobody is to be told later that it has gone without a word."""
    a = await registry.join("a")
    store = view(a)
    await a.epoch.look()
    memory.rows = MemoryStore()
    await a.epoch.look()
    held, closing = asyncio.Event(), asyncio.Event()
    puts = store.calls["put"]

    async def hold(table: str, key: str) -> None:
        if table == TABLE and store.calls["put"] > puts + 1 and not held.is_set():
            held.set()
            await closing.wait()

    store.before = hold
    back = asyncio.create_task(a.come_back())
    await held.wait()
    leaving = asyncio.create_task(a.close())
    for _ in range(20):
        await asyncio.sleep(0)
    closing.set()
    await asyncio.gather(back, leaving)
    assert await memory.rows.scan(TABLE) == []
    await a.come_back()
    assert await memory.rows.scan(TABLE) == []
