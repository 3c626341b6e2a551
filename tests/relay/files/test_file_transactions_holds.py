"""Files that one replica uses: no other one evicts or expires them while it lives."""

from __future__ import annotations

import pytest

from adapter.errors import FileGone, QuotaReached, StoreUnavailable
from adapter.relay.files.scope_cache import HEADS
from adapter.relay.files.storage_total import LEASE, LEASES
from adapter.rules.files.file_records import decode_head
from tests.relay.filing import ALICE, replicas, view


async def test_file_in_use_elsewhere_is_not_evicted() -> None:
    """Its room is free again when its use is over and told of."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"x" * 600)
        release = await one.registry.hold(record)
        with pytest.raises(QuotaReached, match="in use"):
            await two.upload(b"y" * 500)
        release()
        await one.registry.tend()
        [new] = await two.upload(b"y" * 500)
        assert await two.held() == [new]


async def test_file_in_use_elsewhere_does_not_expire() -> None:
    """Its time begins when the use ends, also where the other replica's cleanup looks."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        release = await one.registry.hold(record)
        one.clock.now += 1000
        await two.registry.tidy()
        assert await two.is_found(record)
        release()
        await one.registry.tend()
        one.clock.now += 99
        await two.registry.tidy()
        assert await two.is_found(record)
        one.clock.now += 101
        await two.registry.tidy()
        assert not await one.is_found(record)


async def test_file_used_elsewhere_a_moment_ago_is_not_expired() -> None:
    """The time of its last use is read again before it goes, and before anybody is told that it is gone."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        assert await two.is_found(record)
        one.clock.now += 90
        assert await one.is_found(record)
        one.clock.now += 50
        await two.registry.expire()
        assert await two.held() == [record] and await two.is_found(record)


async def test_file_that_another_replica_removed_cannot_be_taken_into_use() -> None:
    """Though nobody has told this one yet."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        assert await two.is_found(record)
        view(two).deaf = True
        await one.registry.drop(record)
        with pytest.raises(FileGone):
            await two.registry.hold(record)
        assert " 0 files held" in repr(two.registry)


async def test_use_again_and_again_is_written_once() -> None:
    """It lingers until the replica has told that it is over."""
    async with replicas(1) as (one,):
        [record] = await one.upload(b"1")
        (await one.registry.hold(record))()
        before = view(one).calls.total()
        for _ in range(5):
            (await one.registry.hold(record))()
        assert view(one).calls.total() == before
        await one.registry.tend()
        row = await one.store.get(HEADS, ALICE.id)
        assert row is not None and decode_head(row.value) == {}


async def test_artifact_is_in_use_from_its_first_moment() -> None:
    """The call that made it uses it next, without a write of its own."""
    async with replicas(2) as (one, two):
        record = await one.artifact(b"a" * 600)
        before = view(one).calls["commit"]
        release = await one.registry.hold(record)
        assert view(one).calls["commit"] == before
        with pytest.raises(QuotaReached):
            await two.upload(b"y" * 500)
        release()


async def test_uses_of_a_replica_that_ended_count_no_more() -> None:
    """After the time of its lease by this one's clock, however its own clock goes."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"x" * 600)
        await one.registry.hold(record)
        await two.registry.tend()
        view(one).down = True  # and never comes back
        for _ in range(3):
            two.now.now += LEASE / 2 - 1
            await two.registry.tend()
            if two.now.now < LEASE:
                with pytest.raises(QuotaReached):
                    await two.upload(b"y" * 500)
        [new] = await two.upload(b"y" * 500)
        assert await two.held() == [new]


async def test_nobody_ends_while_the_store_is_away() -> None:
    """A long outage lets no replica write; when it is over, what each of them uses is still in use."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"x" * 600)
        release = await one.registry.hold(record)
        await two.registry.tend()
        view(one).down = view(two).down = True
        for _ in range(6):
            two.now.now += LEASE / 4
            with pytest.raises(StoreUnavailable):
                await two.registry.tend()
        view(one).down = view(two).down = False
        with pytest.raises(QuotaReached):
            await two.upload(b"y" * 500)
        await two.registry.tend()
        with pytest.raises(QuotaReached):
            await two.upload(b"y" * 500)
        assert await one.store.count(LEASES) == 2
        release()


async def test_replica_that_ends_in_peace_leaves_no_use_behind() -> None:
    """Its lease is gone with it."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"x" * 600)
        await one.registry.hold(record)
        await one.registry.close()
        with pytest.raises(QuotaReached):
            await two.upload(b"y" * 500)  # it has not looked yet
        await two.registry.tend()
        two.now.now += 1
        await two.registry.tend()
        [new] = await two.upload(b"y" * 500)
        assert await two.held() == [new]


async def test_lease_is_renewed_though_a_head_cannot_be_read() -> None:
    """What one scope fails to tell the others is late, and nothing else: else this replica would count as ended."""
    async with replicas(1) as (one,):
        [record] = await one.upload(b"1")
        release = await one.registry.hold(record)
        assert one.shared is not None
        rows = one.shared.rows
        await rows.put(HEADS, ALICE.id, b"of another version")
        release()
        [lease] = await rows.scan(LEASES)
        for _ in range(3):
            await one.registry.tell_replicas(everything=True)
        assert (await rows.scan(LEASES))[0].version >= lease.version + 3
        with pytest.raises(StoreUnavailable):
            await one.registry.tend()
