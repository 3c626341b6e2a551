"""``storage.max_size`` over several replicas: one sum, and what a replica did not tell is found again."""

from __future__ import annotations

from functools import partial

import orjson
import pytest
from structlog import get_logger

from adapter.errors import StorageFull, StoreUnavailable
from adapter.relay.files.scope_cache import TABLE as FILES
from adapter.relay.files.storage_total import COUNT_EVERY, GROUP, LEASES, RENEWAL, TABLE, StorageTotal
from adapter.rules.access.principals import session_scope
from adapter.rules.files.file_records import size_in
from adapter.rules.files.quota import Ledger, Limits
from adapter.state.fallback import FallbackStore
from tests.relay.filing import ALICE, BOB, Filing, replicas, view
from tests.relay.relaying import Clock
from tests.state.shared import SharedMemory

TOTAL = 6400


async def counted(filing: Filing) -> int:
    """What the row of the sum says."""
    row = await filing.store.get(TABLE, GROUP)
    assert row is not None
    number: int = orjson.loads(row.value)[0]
    return number


async def bytes_held(filing: Filing) -> int:
    return sum(size_in(row.value) for row in await filing.store.scan(FILES))


async def count_again(*some: Filing) -> None:
    """Let it be time to count all files."""
    some[0].now.now += COUNT_EVERY
    for _ in range(8):
        for each in some:
            each.now.now += RENEWAL / len(some)
            await each.registry.tend()


async def test_all_replicas_together_have_one_limit() -> None:
    """What one has filled, another one has not, when it was told."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        await one.upload(b"x" * (TOTAL - 200))
        for each in (one, two):
            await each.registry.tend()
        with pytest.raises(StorageFull):
            await two.upload(b"y" * 201, scope=BOB)
        await two.upload(b"y" * 200, scope=BOB)
        await two.registry.tend()
        assert await bytes_held(one) == await counted(one) == TOTAL


async def test_limit_may_be_passed_by_what_was_not_told_yet() -> None:
    """Each replica goes by what it was told last, and refuses the next file."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        await count_again(one, two)
        await one.upload(b"x" * TOTAL)
        await two.upload(b"y" * 100, scope=BOB)
        for each in (one, two):
            await each.registry.tend()
        assert await counted(one) == await bytes_held(one) == TOTAL + 100
        for each in (one, two):
            await each.registry.tend()
            with pytest.raises(StorageFull):
                await each.upload(b"z", scope=session_scope(b"secret", "c" * 64))


async def test_a_write_that_seemed_to_fail_counts_nothing_of_others() -> None:
    """What another replica removes and brings meanwhile is counted by that one alone."""
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
        for each in (one, two, one):
            await each.registry.tend()
        assert await counted(one) == await bytes_held(one) == 5500
        with pytest.raises(StorageFull):
            await two.upload(b"e" * (TOTAL - 5500 + 1), scope=session_scope(b"secret", "c" * 64))


async def test_files_cost_no_request_of_their_own() -> None:
    """The sum is told from time to time, for all files together."""
    async with replicas(1, total_bytes=TOTAL) as (one,):
        row = await one.store.get(TABLE, GROUP)
        assert row is not None and row.version == 1
        for number in range(10):
            await one.upload(b"%010d" % number)
        await one.registry.tend()
        row = await one.store.get(TABLE, GROUP)
        assert row is not None and row.version == 2
        assert await counted(one) == 100


async def test_bytes_of_a_file_that_goes_are_others_to_use() -> None:
    """Also before anybody told of it: a replica asks before it refuses."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        [record] = await one.upload(b"x" * TOTAL)
        for each in (one, two):
            await each.registry.tend()
        await one.registry.drop(record)
        with pytest.raises(StorageFull):
            await two.upload(b"y", scope=BOB)
        await one.registry.tend()
        await two.upload(b"y" * TOTAL, scope=BOB)


async def test_what_a_killed_replica_did_not_tell_is_found() -> None:
    """When the files are counted again; the limit can be filled to the byte then."""
    async with replicas(3, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two, three):
        [record] = await one.upload(b"x" * 3000)
        for each in (one, two):
            await each.registry.tend()
        await one.registry.drop(record)
        view(one).down = True  # it is killed
        with pytest.raises(StorageFull):
            await two.upload(b"y" * (TOTAL - 1), scope=BOB)
        await count_again(two, three)
        assert await counted(two) == 0
        await two.upload(b"y" * TOTAL, scope=BOB)


async def test_nothing_is_counted_again_while_nothing_changes() -> None:
    """A replica that sees no change for hours leaves the rows of all files alone."""
    async with replicas(1, total_bytes=TOTAL) as (one,):
        await one.upload(b"x" * 300)
        await count_again(one)
        # Behind the back of the adapter: only a count would see it.
        [row] = await one.store.scan(FILES)
        await one.store.delete(FILES, row.key)
        await count_again(one)
        assert await counted(one) == 300


async def test_what_is_told_while_files_are_counted_counts_once() -> None:
    """It may be in the sum twice for a while, but not for ever, also where nothing changes afterwards."""
    async with replicas(2, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one, two):
        told: list[Filing] = []

        async def tell(other: Filing, table: str, key: str) -> None:
            if (table, key) == (FILES, "") and not told:
                told.append(other)
                await other.upload(b"x" * 4000, scope=BOB)
                await other.registry.tend()

        for each, other in ((one, two), (two, one)):
            await each.upload(b"y")
            view(each).before = partial(tell, other)
        for _ in range(3):
            await count_again(one, two)
        assert told
        assert await counted(one) == await bytes_held(one) == 4002


async def test_sum_told_twice_is_right_after_a_minute() -> None:
    """A tell whose answer was lost is told again; no upload is refused for long for the sake of that."""
    async with replicas(1, scope_bytes=None, max_file_bytes=TOTAL, total_bytes=TOTAL) as (one,):
        await count_again(one)
        await one.upload(b"x" * 4000)

        async def lose(table: str, _: str) -> None:
            if table == TABLE and view(one).calls["put"] > puts:
                view(one).swallows = 1

        puts = view(one).calls["put"] + 1  # behind the lease
        view(one).before = lose
        with pytest.raises(StoreUnavailable):
            await one.registry.tend()
        view(one).before = None
        await one.registry.tend()
        assert await counted(one) == 8000
        one.now.now += 60
        await one.registry.tend()
        assert await counted(one) == 4000
        await one.upload(b"y" * (TOTAL - 4000), scope=BOB)


async def test_sum_is_right_after_writes_that_only_seemed_to_fail() -> None:
    """What nobody knows of is found by a count."""
    async with replicas(2, scope_bytes=None, total_bytes=TOTAL) as (one, two):
        view(one).swallows = 1
        with pytest.raises(StoreUnavailable):
            await one.upload(b"x" * 300)
        await one.upload(b"x" * 300)
        await count_again(one, two)
        await count_again(one, two)
        assert await counted(one) == await bytes_held(one)
        assert await bytes_held(one) == 300


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
        StorageTotal(each, ledger, name, now) for each, name in ((store, "one"), (shared.replica(), "other"))
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
