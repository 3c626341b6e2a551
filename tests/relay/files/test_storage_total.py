"""``storage.max_size`` over several replicas: each counts all files again and again."""

from __future__ import annotations

import asyncio

import pytest
from structlog import get_logger

from adapter.errors import StorageFull, StoreUnavailable
from adapter.relay.files.storage_total import COUNT_EVERY, LEASES, RENEWAL, TABLE, ReplicaLeases, StorageTotal
from adapter.rules.access.principals import session_scope
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Limits
from adapter.state.fallback import FallbackStore
from adapter.state.port import Store
from tests.relay.filing import ALICE, BOB, Filing, replicas, view
from tests.relay.relaying import Clock
from tests.state.shared import SharedMemory

TOTAL = 6400
CAROL = session_scope(b"secret", "c" * 64)


async def bytes_held(filing: Filing) -> int:
    return sum(size_in(row.value) for row in await filing.store.scan(TABLE))


async def count_again(*some: Filing) -> None:
    """Let it be time to count all files."""
    some[0].now.now += COUNT_EVERY
    for each in some:
        await each.registry.tend()


async def test_all_replicas_together_have_one_limit() -> None:
    """What one has filled, another one has not, also before it was time to count: it counts before it refuses."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        await one.upload(b"x" * (TOTAL - 200))
        await count_again(one, two)
        with pytest.raises(StorageFull):
            await two.upload(b"y" * 201, scope=BOB)
        [record] = await two.upload(b"y" * 200, scope=BOB)
        assert await bytes_held(one) == TOTAL
        await two.registry.drop(record)
        one.now.now += COUNT_EVERY
        await one.upload(b"z" * 200, scope=CAROL)


async def test_limit_may_be_passed_by_what_was_not_counted_yet() -> None:
    """Each replica goes by what it counted last, and refuses the next file."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        await one.upload(b"x" * TOTAL)
        await two.upload(b"y" * 100, scope=BOB)
        assert await bytes_held(one) == TOTAL + 100
        await count_again(one, two)
        for each in (one, two):
            with pytest.raises(StorageFull):
                await each.upload(b"z", scope=CAROL)


async def test_files_cost_no_request_of_their_own() -> None:
    """They are counted from time to time, and not again and again where each is refused."""
    async with replicas(1, scope_bytes=None, total_bytes=TOTAL) as (one,):
        await one.upload(b"x" * 900)
        await one.held(BOB)
        before = view(one).calls["scan"]
        for number in range(10):
            await one.upload(b"%010d" % number)
        for _ in range(3):
            await one.registry.tend()
            with pytest.raises(StorageFull):
                await one.begin(*[b"x" * 900] * 7, scope=BOB)
        assert view(one).calls["scan"] - before == 3  # for the lease
        await count_again(one)
        assert view(one).calls["scan"] - before == 5


async def test_sum_is_right_after_writes_that_only_seemed_to_fail() -> None:
    """What nobody knows of is found by a count, to the byte; what others bring and remove meanwhile counts once."""
    limits = {"scope_bytes": None, "max_file_bytes": TOTAL, "total_bytes": TOTAL, "max_files": 2}
    async with replicas(2, **limits) as (one, two):
        await one.upload(b"b" * 5000, scope=BOB)
        [goes] = await one.upload(b"a" * 900)
        await count_again(one, two)
        await two.held()
        view(two).swallows = 1
        with pytest.raises(StoreUnavailable):
            await two.upload(b"c")
        await one.registry.drop(goes)
        await one.upload(b"d" * 500)
        await two.held()
        await count_again(one, two)
        assert await bytes_held(one) == 5500
        with pytest.raises(StorageFull):
            await two.upload(b"e" * (TOTAL - 5500 + 1), scope=CAROL)
        await two.upload(b"e" * (TOTAL - 5500), scope=CAROL)


async def test_what_is_being_removed_counts_until_its_bytes_are_gone() -> None:
    """A count between the end of a file's row and that of its bytes gives their room back once, not twice."""
    async with replicas(1, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one,):
        await one.upload(b"y" * 400, scope=BOB)
        [goes] = await one.upload(b"x" * 5000)
        removing, go_on = one.files.steps.gate("remove")
        dropping = asyncio.ensure_future(one.registry.drop(goes))
        await removing.wait()
        await count_again(one)
        with pytest.raises(StorageFull):
            await one.upload(b"z" * 1001, scope=CAROL)
        go_on.set()
        await dropping
        with pytest.raises(StorageFull):
            await one.upload(b"z" * (TOTAL - 400 + 1))
        await one.upload(b"z" * (TOTAL - 400))


async def test_what_comes_while_files_are_counted_counts() -> None:
    """Once it is in the store it may count twice, until the next time."""
    async with replicas(1, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one,):
        came = False

        async def come(table: str, key: str) -> None:
            nonlocal came
            if (table, key) == (TABLE, "") and not came:
                came = True
                await one.upload(b"x" * 4000, scope=BOB)

        await one.upload(b"y")
        view(one).before = come
        await count_again(one)
        assert came
        with pytest.raises(StorageFull):
            await one.upload(b"z" * 2400)
        await count_again(one)
        await one.upload(b"z" * 2399)


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
    stores: list[Store] = [store, shared.replica()]
    leases = [ReplicaLeases(each, name, now) for each, name in zip(stores, ("one", "other"), strict=True)]
    one, other = (StorageTotal(Limits(), lease) for lease in leases)
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


def test_staged_bytes_share_the_limit_with_all_files() -> None:
    """What was refused is not counted; without a limit nothing is refused."""
    total = Filing(total_bytes=100).registry.storage
    total.charge(50)
    one, two = total.stage(), total.stage()
    one.grow(30)
    with pytest.raises(StorageFull, match=r"storage\.max_size is 100 bytes"):
        two.grow(21)
    assert (two.size, total.staged, total.lacking(21), total.lacking(51, one.size)) == (0, 30, 1, 1)
    two.grow(20)
    one.shrink(30)
    total.charge(-10)
    two.grow(40)
    assert (total.staged, total.spare, total.lacking(1)) == (60, 60, 1)
    Filing().registry.storage.stage().grow(1 << 60)
