"""``storage.max_size`` over several replicas: never exceeded, and what a replica left is found again."""

from __future__ import annotations

import orjson
import pytest
from structlog import get_logger

from adapter.errors import StorageFull, StoreUnavailable
from adapter.relay.files.head_writer import TABLE as FILES
from adapter.relay.files.replica_leases import GROUP, LEASE, RENEWAL
from adapter.relay.files.replica_leases import TABLE as LEASES
from adapter.relay.files.storage_share import PARTS, TABLE, StorageShare
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Ledger, Limits
from adapter.state.fallback import FallbackStore
from tests.relay.filing import ALICE, BOB, Filing, replicas, view
from tests.relay.relaying import Clock
from tests.state.shared import SharedMemory

TOTAL = 6400
CHUNK = TOTAL // PARTS


async def taken(filing: Filing) -> int:
    """What the row of the sum says."""
    row = await filing.store.get(TABLE, GROUP)
    assert row is not None
    number: int = orjson.loads(row.value)[0]
    return number


async def bytes_held(filing: Filing) -> int:
    return sum(size_in(row.value) for row in await filing.store.scan(FILES))


async def settle(*some: Filing) -> None:
    """Let the leases be renewed until everything is found."""
    for _ in range(8):
        for each in some:
            each.now.now += RENEWAL / len(some)
            await each.registry.tend()


async def test_all_replicas_together_have_one_limit() -> None:
    """What one has filled, another one has not."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        await one.upload(b"x" * (TOTAL - 2 * CHUNK))
        with pytest.raises(StorageFull):
            await two.upload(b"y" * (2 * CHUNK + 1), scope=BOB)
        await two.upload(b"y" * CHUNK, scope=BOB)
        assert await bytes_held(one) <= await taken(one) <= TOTAL


async def test_small_files_come_out_of_one_chunk() -> None:
    """Not every file asks the store for more."""
    async with replicas(1, total_bytes=TOTAL) as (one,):
        for number in range(CHUNK // 10):
            await one.upload(b"%010d" % number)
        assert await taken(one) == CHUNK
        row = await one.store.get(TABLE, GROUP)
        assert row is not None and row.version == 2


async def test_replica_gives_back_what_it_does_not_need() -> None:
    """At most a chunk stays with one that is busy, nothing with one that is not."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        [record] = await one.upload(b"x" * (TOTAL - CHUNK))
        await one.registry.drop(record)
        with pytest.raises(StorageFull):
            await two.upload(b"y" * (TOTAL - CHUNK), scope=BOB)
        await one.registry.tend()
        await two.upload(b"y" * (TOTAL - CHUNK), scope=BOB)
        await two.registry.tend()
        await two.registry.tend()
        assert await taken(one) <= TOTAL - CHUNK + CHUNK
        await one.registry.tend()
        await two.registry.tend()
        assert await taken(one) == await bytes_held(one) == TOTAL - CHUNK


async def test_what_a_killed_replica_had_to_spare_is_found() -> None:
    """When its lease is over and the files were counted; the limit can be filled to the byte again."""
    async with replicas(3, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two, three):
        [record] = await one.upload(b"x" * 3000)
        await one.registry.drop(record)
        view(one).down = True  # it is killed
        with pytest.raises(StorageFull):
            await two.upload(b"y" * (TOTAL - CHUNK), scope=BOB)
        await settle(two, three)
        two.now.now += LEASE
        await settle(two, three)
        assert await taken(two) == 0
        await two.upload(b"y" * TOTAL, scope=BOB)


async def test_files_that_come_while_others_are_counted_count() -> None:
    """The sum is never too small."""
    async with replicas(3, scope_bytes=None, total_bytes=TOTAL) as (one, two, three):
        await one.upload(b"x" * 500)
        view(one).down = True
        two.now.now += LEASE
        for number in range(30):
            for each in (two, three):
                two.now.now += RENEWAL / 2
                await each.registry.tend()
                [record] = await each.upload(b"y" * (20 + number))
                if number % 3 == 0:
                    await each.registry.drop(record)
                spare = sum(other.registry.spare or 0 for other in (two, three))
                assert await bytes_held(two) + spare <= await taken(two) <= TOTAL
        await settle(two, three)
        assert await taken(two) == await bytes_held(two)


async def test_replica_taken_for_ended_spends_nothing_that_is_not_its_own() -> None:
    """It slept for longer than its lease, and asks anew before it keeps a file."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        [record] = await one.upload(b"x" * (TOTAL - CHUNK))
        await one.registry.drop(record)  # it has everything to spare
        two.now.now += LEASE  # the other clock is its own too, so nothing is renewed meanwhile
        await settle(two)
        two.now.now += LEASE
        await settle(two)
        await two.upload(b"y" * (TOTAL - CHUNK), scope=BOB)
        with pytest.raises(StorageFull):
            await one.upload(b"x" * (2 * CHUNK))
        assert await bytes_held(one) <= TOTAL


async def test_sum_is_right_after_writes_that_only_seemed_to_fail() -> None:
    """What nobody knows of is found by a count."""
    async with replicas(2, scope_bytes=None, total_bytes=TOTAL) as (one, two):
        view(one).swallows = 1
        with pytest.raises(StoreUnavailable):
            await one.upload(b"x" * 300)
        await one.upload(b"x" * 300)
        await settle(one, two)
        await settle(one, two)
        assert await taken(one) == await bytes_held(one) == 300


async def test_files_of_an_earlier_process_count() -> None:
    """One process, with nothing but rows; then several."""
    filing = Filing(total_bytes=1000, scope_bytes=None)
    await filing.upload(b"x" * 600)
    await filing.restart()
    with pytest.raises(StorageFull):
        await filing.upload(b"y" * 401, scope=BOB)
    await filing.upload(b"y" * 400, scope=BOB)
    async with replicas(1, total_bytes=1000, scope_bytes=None) as (one,):
        [record] = await one.upload(b"x" * 600, scope=ALICE)
        await one.registry.close()
        await one.store.delete(TABLE, GROUP)
        following = Filing(
            shared=one.shared,
            disk=one.files,
            clock=one.clock,
            now=one.now,
            total_bytes=1000,
            scope_bytes=None,
        )
        await following.registry.open()
        with pytest.raises(StorageFull):
            await following.upload(b"y" * 401, scope=BOB)
        assert await following.held() == [record]
        await following.registry.close()


async def test_replica_that_goes_on_in_memory_takes_nobody_for_ended() -> None:
    """What it remembers of the others stands still; it says nothing about them, and nothing of it is written back."""
    shared, now = SharedMemory(), Clock()
    inner = shared.replica()
    store = FallbackStore(inner, get_logger(), retry=3600.0)
    ledger = Ledger(Limits())
    one, other = (
        StorageShare(each, ledger, name, now) for each, name in ((store, "one"), (shared.replica(), "other"))
    )
    await other.open()
    await one.open()
    inner.down = True
    for _ in range(6):
        now.now += RENEWAL
        with pytest.raises(StoreUnavailable):
            await one.tend()
    assert not one.leases.is_dead("other")
    inner.down = False
    await store.close()
    assert await shared.rows.count(LEASES) == 2
