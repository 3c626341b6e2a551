"""Rounds of the cleanup: one replica does each task, and another takes over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest

from adapter import log
from adapter.errors import StoreUnavailable
from adapter.relay.cleanup import TABLE, Cleanup, CleanupTask, Lease
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until

INTERVAL = 60.0


@dataclass
class Sweeper:
    """A replica that counts its rounds of two tasks: one that it does alone, and one that each replica does."""

    memory: SharedMemory
    interval: float = INTERVAL
    alone: int = 0
    each: int = 0
    cancelled: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.go_on.set()
        self.store: ReplicaStore = self.memory.replica()
        tasks = (CleanupTask("alone", self._alone), CleanupTask("each", self._each, alone=False))
        self.cleanup = Cleanup(self.interval, tasks, log.get_logger("test"), self._lease_of)

    def _lease_of(self, name: str) -> Lease:
        return Lease(self.store, name, INTERVAL, self.clock, self.clock)

    async def _alone(self) -> None:
        self.alone += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _each(self) -> None:
        self.each += 1


@pytest.fixture
def sweepers() -> list[Sweeper]:
    memory = SharedMemory()
    return [Sweeper(memory) for _ in range(3)]


async def rounds(sweepers: list[Sweeper], number: int) -> None:
    for _ in range(number):
        await asyncio.gather(*(each.cleanup.run_once() for each in sweepers))
        for each in sweepers:
            each.clock.now += INTERVAL / 3


async def test_one_replica_does_what_is_done_alone(sweepers: list[Sweeper]) -> None:
    """Each does its own part in every round."""
    await rounds(sweepers, 6)
    assert sorted(each.alone for each in sweepers) == [0, 0, 6]
    assert [each.each for each in sweepers] == [6, 6, 6]


async def test_another_takes_over_within_two_intervals(sweepers: list[Sweeper]) -> None:
    """The one that did it was killed: it renews and releases nothing any more."""
    await rounds(sweepers, 3)
    dead = next(each for each in sweepers if each.alone)
    left = [each for each in sweepers if each is not dead]
    await rounds(left, 6)
    assert sum(each.alone for each in left) >= 1


async def test_replica_that_was_stopped_in_the_middle_of_its_round_leaves_it(sweepers: list[Sweeper]) -> None:
    """Another does it meanwhile; the one that wakes up is told by the lease, and begins none of its own."""
    one, two, _ = sweepers
    one.go_on.clear()
    stopped = asyncio.create_task(one.cleanup.run_once())
    await until(lambda: one.alone)
    for _ in range(5):
        await rounds([two], 1)
    assert two.alone >= 1
    one.clock.now += 10 * INTERVAL
    one.cleanup._begin_round()
    await one.cleanup._renew()
    await stopped
    assert (one.alone, one.cancelled) == (1, 1)


async def test_new_holder_begins_at_once() -> None:
    """It does not wait for its next round, since the one before it has left the last one."""
    one = Sweeper(SharedMemory(), 0.06)
    running = asyncio.create_task(one.cleanup.run())
    await until(lambda: one.alone)
    assert one.each == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_lease_that_cannot_be_renewed_lasts_until_its_time_is_over(sweepers: list[Sweeper]) -> None:
    """A store that fails for a moment stops no round; one that is down for longer does."""
    one = sweepers[0]
    await one.cleanup.run_once()
    one.store.down = True
    one.clock.now += INTERVAL / 2
    await one.cleanup.run_once()
    assert one.alone == 2
    one.clock.now += INTERVAL
    await one.cleanup.run_once()
    assert one.alone == 2


async def test_leases_are_released_at_the_stop() -> None:
    """The next replica need not wait; with none, no row of a lease is left."""
    memory = SharedMemory()
    one, two = Sweeper(memory, 0.003), Sweeper(memory, 0.003)
    running = asyncio.create_task(one.cleanup.run())
    await until(lambda: one.alone)
    one.go_on.clear()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await memory.rows.count(TABLE) == 0
    await two.cleanup.run_once()
    assert two.alone == 1


async def test_process_with_a_store_of_its_own_writes_no_lease() -> None:
    """It does every task in every round."""
    done: list[str] = []

    async def do(name: str) -> None:
        done.append(name)

    async def fail() -> None:
        raise StoreUnavailable

    tasks = (
        CleanupTask("fails", fail),
        CleanupTask("one", partial(do, "one")),
        CleanupTask("two", partial(do, "two"), alone=False),
    )
    cleanup = Cleanup(INTERVAL, tasks, log.get_logger("test"))
    await cleanup.run_once()
    await cleanup.run_once()
    assert done == ["one", "two", "one", "two"]
