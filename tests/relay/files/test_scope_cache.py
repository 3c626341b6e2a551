"""Files of one scope in several replicas: found everywhere, counted once, and gone everywhere."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import StoreUnavailable
from adapter.relay.files.scope_cache import EMPTY_KEPT, ENDED_KEPT, HEADS
from adapter.relay.files.storage_total import TABLE
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import decode_head
from adapter.state.port import Row
from tests.relay.filing import ALICE, BOB, Filing, SteppedStore, replicas, view


async def test_file_is_found_by_every_replica() -> None:
    """One that came before another replica knew the scope, and one that came after."""
    async with replicas(2) as (one, two):
        [first] = await one.upload(b"1")
        assert await two.held() == [first]
        [second] = await one.upload(b"2")
        await words()
        assert await two.held() == [first, second]
        await two.registry.drop(first)
        await words()
        assert await one.held() == [second] and not await one.is_found(first)
        assert await one.agrees() and await two.agrees()


async def test_warm_scope_costs_no_look_at_the_store() -> None:
    """As long as nobody else changes it."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        assert await two.is_found(record)
        await words()
        for each in (one, two):
            await each.is_found(record)
            before = view(each).calls.total()
            for _ in range(10):
                assert await each.is_found(record)
            assert view(each).calls.total() == before


async def test_upload_is_one_write_of_the_store() -> None:
    """The head of its scope goes with its rows."""
    async with replicas(2) as (one, _):
        await one.upload(b"1")
        before = view(one).calls.copy()
        await one.upload(b"2")
        view(one).calls.subtract(before)
        assert {name: number for name, number in view(one).calls.items() if number} == {"commit": 2}


async def test_replica_that_hears_nothing_asks_again() -> None:
    """When it is told that it may have missed something; the head that is still the same is read alone."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        view(two).deaf = True
        assert await two.is_found(record)
        view(two).unsure()
        scans = view(two).calls["scan"]
        assert await two.is_found(record) and view(two).calls["scan"] == scans
        await one.registry.drop(record)
        view(two).unsure()
        assert not await two.is_found(record)


async def test_nothing_old_is_told_while_the_store_cannot_be_read() -> None:
    """Whoever asks is told that."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        assert await two.is_found(record)
        view(two).down = True
        assert await two.is_found(record)
        view(two).unsure()
        with pytest.raises(StoreUnavailable):
            await two.is_found(record)
        view(two).down = False
        assert await two.is_found(record)


async def test_replica_that_knows_too_little_cannot_exceed_the_quota() -> None:
    """Its write fails, it reads the scope again, and takes what is to go out of what is there."""
    async with replicas(2) as (one, two):
        [old] = await one.upload(b"x" * 600)
        assert await two.held() == [old]
        view(two).deaf = True
        one.clock.now += 1
        [newer] = await one.upload(b"y" * 300)
        one.clock.now += 1
        [newest] = await two.upload(b"z" * 500)
        await words()
        assert await one.held() == [newer, newest]
        assert await one.agrees() and await two.agrees()


async def test_write_that_only_seemed_to_fail_is_no_file_and_no_room() -> None:
    """Its sender is told that it failed, so nothing stays of it, in no replica."""
    async with replicas(2) as (one, two):
        [kept] = await one.upload(b"k" * 500)
        view(one).swallows = 1
        with pytest.raises(StoreUnavailable):
            await one.upload(b"x" * 400)
        assert await one.held() == [kept]
        await words()
        assert await two.held() == [kept]
        assert await one.agrees() and await two.agrees()


async def test_removal_that_only_seemed_to_fail_is_one() -> None:
    """The file is gone where it was dropped, too."""
    async with replicas(2) as (one, two):
        [record] = await one.upload(b"k" * 500)
        view(one).swallows = 1
        with pytest.raises(StoreUnavailable):
            await one.registry.drop(record)
        assert await one.held() == [] and await two.held() == []


async def test_head_of_a_scope_with_files_stays() -> None:
    """Whether somebody uses them or not."""
    async with replicas(1) as (one,):
        await one.upload(b"1" * 10, b"2" * 20)
        await one.artifact(b"3" * 30)
        await one.registry.tend()
        row = await one.store.get(HEADS, ALICE.id)
        assert row is not None and row.due is None
        assert decode_head(row.value) == {}


@pytest.mark.parametrize(("ended", "kept"), [(False, EMPTY_KEPT), (True, ENDED_KEPT)])
async def test_head_of_an_empty_scope_stays_for_a_while(ended: bool, kept: float) -> None:
    """For an hour, longer than any replica may remember its version; for minutes where the session has ended, which
    does not come back. Then the cleanup deletes it."""

    async def nobody(scope: Scope) -> bool:
        return False

    async with replicas(2) as (one, two):
        [record] = await one.upload(b"1")
        await (one.registry.drop_scope(ALICE.id) if ended else one.registry.drop(record))
        for heads in (1, 0):
            await two.registry.tidy(nobody)
            assert await one.store.count(HEADS) == heads and await one.store.count(TABLE) == 0
            one.clock.now += kept + 1
        await words()
        [record] = await one.upload(b"2")
        assert await two.held() == [record]


async def test_one_process_writes_no_head(filing: Filing) -> None:
    """Nobody would read it."""
    await filing.upload(b"1")
    await filing.registry.drop_scope(ALICE.id)
    assert await filing.store.count(HEADS) == 0


async def test_scope_of_one_process_is_known_without_a_look_where_there_was_no_file() -> None:
    """All that came since came here."""

    class CountingStore(SteppedStore):
        scans = 0

        async def scan(
            self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
        ) -> list[Row]:
            self.scans += 1
            return await super().scan(table, group=group, after=after, limit=limit)

    filing = Filing()
    filing.store = store = CountingStore(filing.steps)
    await filing.restart()
    before = store.scans
    await filing.upload(b"1")
    await filing.upload(b"2", scope=BOB)
    assert store.scans == before


async def test_unused_scopes_are_forgotten() -> None:
    """After two rounds of the cleanup in which nobody asked for them; what is held is not."""
    filing = Filing(upload_ttl=None)
    [held], [other] = await filing.upload(b"1"), await filing.upload(b"2", scope=BOB)
    release = await filing.registry.hold(held)
    for _ in range(3):
        await filing.registry.tidy_own()
    assert filing.registry.total == 1
    assert await filing.is_found(other) and filing.registry.total == 2
    release()
    for _ in range(3):
        await filing.registry.tidy_own()
    assert filing.registry.total == 0
    assert await filing.held() == [held] and await filing.held(BOB) == [other]


async def words() -> None:
    """Let the words of others arrive."""
    for _ in range(3):
        await asyncio.sleep(0)
