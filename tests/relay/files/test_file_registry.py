"""What scopes hold: used, kept in use, expired, evicted, known again after a restart, and gone with its scope."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import QuotaReached, StorageFailed, StorageFull, StoreUnavailable
from adapter.relay.files.file_transactions import REMOVED_AT_ONCE
from adapter.relay.files.storage_total import TABLE
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileKind, FileRecord, Place
from tests.relay.filing import ALICE, BOB, Filing, replicas, view
from tests.relay.turns import longest_wait

# --- time ---


async def test_time_counts_from_the_last_access(filing: Filing) -> None:
    """A file that is found again and again lives on; one that nobody asks for is gone, found or tidied."""
    [used], [unused] = await filing.upload(b"1"), await filing.upload(b"2")
    assert filing.registry.expires_at(used) == filing.clock() + 100
    for _ in range(5):
        filing.clock.now += 60
        assert await filing.is_found(used)
    assert filing.registry.expires_at(used) == filing.clock() + 100
    assert not await filing.is_found(unused)
    assert await filing.held() == [used]
    await filing.registry.tidy()
    assert list(filing.files.placed) == [used.place]
    assert await filing.agrees()


async def test_each_kind_has_its_time() -> None:
    """Without a time a file stays as long as its scope."""
    filing = Filing(artifact_ttl=None)
    [upload], artifact = await filing.upload(b"1"), await filing.artifact(b"2")
    assert filing.registry.expires_at(artifact) is None
    filing.clock.now += 10_000
    await filing.registry.tidy()
    assert await filing.held() == [artifact]
    assert not await filing.is_found(upload)


async def test_last_access_is_written_behind(filing: Filing) -> None:
    """Finding a file writes nothing; the cleanup's round writes each file that was used once, as touches."""
    [one], [two] = await filing.upload(b"1"), await filing.upload(b"2")
    await filing.registry.tidy_own()
    filing.clock.now += 50
    for _ in range(10):
        await filing.is_found(one)
    written = filing.steps.taken["rows"]
    await filing.registry.tidy_own()
    rows = {row.key: row for row in await filing.store.scan(TABLE)}
    assert rows[one.key].due == filing.clock() + 100
    assert rows[two.key].due == filing.clock() + 50
    assert {row.version for row in rows.values()} == {1}
    assert filing.steps.taken["rows"] == written


async def test_access_that_could_not_be_written_is_written_later(filing: Filing) -> None:
    """A store that fails for a while loses no access; closing writes what is left."""
    [record] = await filing.upload(b"1")
    filing.clock.now += 50
    await filing.is_found(record)
    filing.steps.fail("touch", StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await filing.registry.tidy_own()
    filing.steps.heal("touch")
    await filing.registry.close()
    row = await filing.store.get(TABLE, record.key)
    assert row is not None and row.due == filing.clock() + 100


# --- in use ---


async def test_held_file_is_neither_expired_nor_evicted(filing: Filing) -> None:
    """Somebody works with it: its time stands still, and what would need its room is refused."""
    [record] = await filing.upload(b"x" * 600)
    release, release_too = await filing.registry.hold(record), await filing.registry.hold(record)
    filing.clock.now += 1000
    await filing.registry.tidy()
    assert await filing.is_found(record)
    release()
    release()
    with pytest.raises(QuotaReached):
        await filing.upload(b"y" * 500)
    assert await filing.held() == [record]
    assert filing.steps.taken["place"] == 1
    filing.clock.now += 50
    release_too()
    filing.clock.now += 99
    assert await filing.is_found(record)
    await filing.upload(b"y" * 500)
    assert not await filing.is_found(record)
    assert await filing.agrees()


# --- eviction ---


async def test_eviction_takes_the_longest_unused_first_and_no_more_than_it_needs() -> None:
    """Uploads go before artifacts, by the default policy. Each that goes is told."""
    filing, told = Filing(), list[FileRecord]()
    filing.registry.watch(told.append, lambda seconds, entered: None)
    artifact = await filing.artifact(b"a" * 300)
    uploads = []
    for _ in range(3):
        filing.clock.now += 1
        uploads += await filing.upload(b"x" * 200)
    filing.clock.now += 1
    await filing.is_found(uploads[0])
    [new] = await filing.upload(b"y" * 250)
    assert await filing.held() == [uploads[0], uploads[2], new, artifact]
    assert told == [uploads[1]] and filing.registry.files == 4
    assert await filing.agrees()


async def test_bytes_that_go_and_come_are_counted_until_they_are_settled() -> None:
    """Another scope gets no room that an exchange may still need, should it fail."""
    filing = Filing(total_bytes=1100)
    [old] = await filing.upload(b"o" * 600)
    filing.steps.fail("rows", StoreUnavailable())
    gates = [filing.steps.gate("rows"), filing.steps.gate("remove")]
    coming = asyncio.ensure_future(filing.upload(b"n" * 500))
    for there, go_on in gates:
        await there.wait()
        with pytest.raises(StorageFull):
            await filing.begin(b"x", scope=BOB)
        go_on.set()
    with pytest.raises(StoreUnavailable):
        await coming
    filing.steps.heal("rows")
    assert await filing.held() == [old]
    await filing.upload(b"x" * 500, scope=BOB)
    assert await filing.agrees()


async def test_artifact_takes_the_scopes_own_files_where_all_together_leave_no_room() -> None:
    """As many as it needs, where that helps and no other limit stands against it."""
    filing = Filing(total_bytes=100, artifacts=1)
    await filing.upload(b"b" * 20, scope=BOB)
    [old] = await filing.upload(b"o" * 40)
    filing.clock.now += 1
    [new] = await filing.upload(b"n" * 40)
    with pytest.raises(StorageFull):
        await filing.artifact(b"a" * 81)
    assert await filing.held() == [old, new] and await filing.agrees()
    artifact = await filing.artifact(b"a" * 40)
    assert await filing.held() == [new, artifact]
    with pytest.raises(QuotaReached, match=r"artifacts\.max_per_session"):
        await filing.artifact(b"a" * 10, file_id="e" * 32)
    assert await filing.held() == [new, artifact]
    assert await filing.agrees()


async def test_file_the_disk_will_not_give_up_is_left_to_the_sweep(filing: Filing) -> None:
    """Its record is gone, so it is not counted; a later round removes it."""
    [record] = await filing.upload(b"1")
    filing.steps.fail("remove", StorageFailed())
    await filing.registry.drop(record)
    assert filing.registry.total == 0 and record.place in filing.files.placed
    await filing.registry.tidy()
    assert await filing.agrees()


# --- restart ---


async def test_restart_gives_the_exact_quota(filing: Filing) -> None:
    """What was held is held, with its last access; what was on its way in counts no more."""
    [one] = await filing.upload(b"x" * 300)
    [two] = await filing.upload(b"y" * 200, scope=BOB)
    artifact = await filing.artifact(b"a" * 100)
    await filing.begin(b"z" * 400)
    filing.clock.now += 60
    await filing.is_found(one)
    await filing.registry.tidy_own()
    await filing.registry.tidy()
    await filing.restart()
    assert await filing.held() == [one, artifact] and await filing.held(BOB) == [two]
    assert (filing.registry.used(ALICE.id), filing.registry.used(BOB.id)) == (400, 200)
    assert filing.registry.expires_at(one) == filing.clock() + 100
    assert filing.registry.expires_at(artifact) == filing.clock() + 40
    assert await filing.agrees()
    filing.clock.now += 41
    assert await filing.held() == [one]


async def test_restart_drops_rows_whose_file_is_not_there(filing: Filing) -> None:
    """A file that is gone is not held, and takes no room."""
    whole, gone = await filing.upload(b"1" * 10, b"2" * 10)
    del filing.files.placed[gone.place]
    await filing.restart()
    assert await filing.held() == [whole]
    assert filing.registry.total == 10
    assert [row.key for row in await filing.store.scan(TABLE)] == [whole.key]
    await filing.registry.tidy()
    assert await filing.agrees()


async def test_restart_passes_over_rows_of_another_version(filing: Filing) -> None:
    """They harm no other, and are left to whoever can read them."""
    [record] = await filing.upload(b"1")
    await filing.store.put(TABLE, "unreadable", b"of another version")
    await filing.restart()
    assert await filing.held() == [record]
    assert await filing.store.count(TABLE) == 2


async def test_restart_reads_more_than_a_page_of_rows() -> None:
    """However many files there are."""
    filing = Filing(max_files=1200, scope_bytes=None)
    await filing.upload(*[b"x"] * 1200)
    await filing.restart()
    assert filing.registry.total == 1200
    assert await filing.agrees()


async def test_restart_with_a_smaller_quota_lets_new_files_in(filing: Filing) -> None:
    """Old ones go for them, until what is left is within the quota."""
    await filing.upload(b"1" * 400, b"2" * 400)
    filing.scope_bytes = 500
    await filing.restart()
    assert filing.registry.used(ALICE.id) == 800
    [new] = await filing.upload(b"3" * 50)
    assert new in await filing.held()
    assert filing.registry.used(ALICE.id) == 450
    assert await filing.agrees()


async def test_shorter_time_after_a_restart_starts_no_file_in_the_future() -> None:
    """A row's due time was reckoned with the old setting."""
    filing = Filing(upload_ttl=600.0)
    [record] = await filing.upload(b"1")
    filing.upload_ttl = 100.0
    await filing.restart()
    assert filing.registry.expires_at(record) == filing.clock() + 100


# --- sweep and scopes ---


async def test_sweep_leaves_what_is_held_or_on_its_way(filing: Filing) -> None:
    """It takes what no record knows, also while a batch is being placed and has no row yet."""
    [held] = await filing.upload(b"1")
    filing.files.placed[Place(FileKind.UPLOAD, BOB.id, "9" * 32, "orphan")] = b"2"
    there, go_on = filing.steps.gate("rows")
    coming = asyncio.ensure_future(filing.upload(b"3"))
    await there.wait()
    await filing.registry.tidy()
    go_on.set()
    [new] = await coming
    assert set(filing.files.placed) == {held.place, new.place}
    assert await filing.agrees()


async def test_sweep_reads_the_rows_of_a_scope_once() -> None:
    """However many files there are of scopes that are not in use here; what no row knows goes."""
    async with replicas(2, upload_ttl=None) as (one, two):
        held = [*await one.upload(*[b"1"] * 30), *await one.upload(*[b"2"] * 30, scope=BOB)]
        two.files.placed[Place(FileKind.UPLOAD, BOB.id, "9" * 32, "orphan")] = b"3"
        two.now.now += 1000
        before = view(two).calls.copy()
        await two.registry.tidy()
        assert two.files.placed.keys() == {record.place for record in held}
        assert (view(two).calls - before).total() < 10


async def test_sweep_is_left_out_where_it_is_switched_off() -> None:
    """Files nobody knows of stay where they are."""
    filing = Filing(sweep_grace=None)
    filing.files.placed[Place(FileKind.UPLOAD, BOB.id, "9" * 32, "orphan")] = b"2"
    await filing.registry.tidy()
    assert len(filing.files.placed) == 1


async def test_scope_that_ends_takes_its_files_along(filing: Filing) -> None:
    """Rows, files and allocated places; another scope keeps its own."""
    await filing.upload(b"1", b"2")
    await filing.artifact(b"3")
    filing.files.placed[Place(FileKind.ARTIFACT, ALICE.id, "9" * 32, "allocated")] = b""
    [other] = await filing.upload(b"4", scope=BOB)
    await filing.registry.drop_scope(ALICE.id)
    assert await filing.held() == [] and await filing.held(BOB) == [other]
    assert list(filing.files.placed) == [other.place]
    assert await filing.agrees()


async def test_scope_of_thousands_of_files_ends_in_few_steps() -> None:
    """A session that ends waits for as few changes of threads as its files fit into, and others have turns between."""
    filing = Filing(scope_bytes=None, max_files=5000)
    records = await filing.upload(*[b"1"] * 5000)
    filing.clock.now += 1000
    ending = asyncio.ensure_future(filing.registry.drop_scope(ALICE.id))
    assert await longest_wait(ending) < 0.05
    assert len(records) == 5000 and filing.files.placed == {}
    assert filing.steps.taken["remove"] <= 5000 / REMOVED_AT_ONCE
    assert await filing.agrees()


async def test_tidying_ends_scopes_whose_session_is_gone(filing: Filing) -> None:
    """Where its end was missed, say by a process that was killed."""
    await filing.upload(b"1")
    [other] = await filing.upload(b"2", scope=BOB)

    async def gone(scope: Scope) -> bool:
        return scope == ALICE

    await filing.registry.tidy(gone)
    assert await filing.held() == [] and await filing.held(BOB) == [other]
    assert await filing.agrees()
