"""Leases: one holder at a time, another when that one is gone, and nobody's clock but one's own."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import StoreUnavailable
from adapter.relay.cleanup import TABLE, Lease, tidy
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until

SECONDS = 10.0


class Holder:
    """A replica with a clock of its own."""

    def __init__(self, memory: SharedMemory, name: str = "sweep") -> None:
        self.store: ReplicaStore = memory.replica()
        self.clock = Clock()
        self.lease = Lease(self.store, name, SECONDS, self.clock, self.clock)


@pytest.fixture
def holders() -> tuple[Holder, Holder]:
    memory = SharedMemory()
    return Holder(memory), Holder(memory)


async def test_one_of_two_holds_a_lease(holders: tuple[Holder, Holder]) -> None:
    """Asked for at the same time, it is given once, and renewed by its holder alone."""
    one, two = holders
    taken = await asyncio.gather(one.lease.take(), two.lease.take())
    assert sorted(taken) == [False, True]
    for _ in range(5):
        for holder, held in zip(holders, taken, strict=True):
            holder.clock.now += SECONDS / 3
            assert await holder.lease.take() is held is holder.lease.held


async def test_lease_of_a_dead_holder_is_taken_over(holders: tuple[Holder, Holder]) -> None:
    """Not before its row was seen unchanged for its seconds, whatever the holder's clock said."""
    one, two = holders
    one.clock.now -= 1_000_000
    await one.lease.take()
    assert not await two.lease.take()
    two.clock.now += SECONDS - 0.1
    assert not await two.lease.take()
    two.clock.now += 0.1
    assert await two.lease.take() and two.lease.held


async def test_holder_that_renews_is_never_robbed(holders: tuple[Holder, Holder]) -> None:
    """Not even by a replica whose clock runs far ahead."""
    one, two = holders
    await one.lease.take()
    for _ in range(10):
        await two.lease.take()
        two.clock.now += 100 * SECONDS
        await one.lease.take()
        assert not await two.lease.take()


async def test_stopped_holder_knows_that_its_lease_is_over(holders: tuple[Holder, Holder]) -> None:
    """When it goes on it does not believe in it, and does not get it back from the one that has it now."""
    one, two = holders
    await one.lease.take()
    await two.lease.take()
    for each in holders:
        each.clock.now += SECONDS
    assert not one.lease.held
    assert await two.lease.take()
    assert not await one.lease.take()
    await one.lease.release()
    assert not await one.lease.take() and two.lease.held


async def test_released_lease_is_free_at_once(holders: tuple[Holder, Holder]) -> None:
    """Its next holder is not taken for the one before."""
    one, two = holders
    for _ in range(3):
        await one.lease.take()
        assert not await two.lease.take()
        await one.lease.release()
        assert await two.lease.take()
        assert not await one.lease.take()
        one.clock.now += SECONDS - 1
        await two.lease.release()
    assert await one.lease.take()
    two.clock.now += 2
    assert not await two.lease.take()


async def test_write_that_was_done_although_it_failed_is_ones_own(holders: tuple[Holder, Holder]) -> None:
    """The holder does not trust it, finds it at the next try, and locks itself out of nothing."""
    one, two = holders
    one.store.swallows = 1
    with pytest.raises(StoreUnavailable):
        await one.lease.take()
    assert not one.lease.held and not await two.lease.take()
    assert await one.lease.take() and one.lease.held


async def test_lease_is_kept_for_as_long_as_a_block_takes(holders: tuple[Holder, Holder]) -> None:
    """It is renewed meanwhile, also behind a store that failed, and free afterwards."""
    one, two = holders
    one.lease = Lease(one.store, "sweep", 0.03)
    assert await one.lease.take()
    async with one.lease.kept():
        one.store.down = True
        before = one.store.calls["get"]
        await until(lambda: one.store.calls["get"] >= before + 2)
        one.store.down = False
        before = one.store.calls["put"]
        await until(lambda: one.store.calls["put"] >= before + 2)
        assert one.lease.held and not await two.lease.take()
    assert await two.lease.take()


async def test_leases_left_behind_are_deleted_in_time(holders: tuple[Holder, Holder]) -> None:
    """The rows of processes that died, after a day; one that is renewed stays."""
    one, _ = holders
    await one.lease.take()
    await tidy(one.store, one.clock())
    assert await one.store.count(TABLE) == 1
    await tidy(one.store, one.clock() + 90_000)
    assert await one.store.count(TABLE) == 0
