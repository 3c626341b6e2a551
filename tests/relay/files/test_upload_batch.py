"""Batches of uploads: limits while they are read, all or nothing in the end, and nothing left by those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from adapter.errors import (
    AdapterError,
    QuotaReached,
    SessionUnknown,
    StorageFailed,
    StorageFull,
    StoreUnavailable,
    UploadRefused,
)
from adapter.relay.files.file_transactions import Spend
from adapter.relay.files.signed_urls import Credentials
from adapter.relay.files.upload_batch import UploadQueue
from adapter.wire.signed_urls import UploadCredential, parameters
from tests.relay.filing import ALICE, BOB, Filing, all_open


async def credential(filing: Filing) -> tuple[Callable[[], Awaitable[UploadCredential]], Spend]:
    """A credential of ALICE's: what checks it, and what spends it."""
    credentials = Credentials(filing.store, configured=b"key", ttl=60.0, clock=filing.clock)
    query = parameters(credentials.issue("one", ALICE.id)[0])
    found = await credentials.check("one", query)
    return lambda: credentials.check("one", query), lambda: credentials.spend(found)


# --- what is kept ---


# --- limits while reading ---


async def test_batch_that_never_fits_is_refused_while_it_comes(filing: Filing) -> None:
    """Files that each fit but not together end at the quota, and drive nothing out."""
    [old] = await filing.upload(b"o" * 500)
    batch = await filing.registry.begin(ALICE, "one", None)
    batch.add("a", None)
    await batch.write(b"x" * 600)
    await batch.end_file()
    batch.add("b", None)
    with pytest.raises(QuotaReached, match=r"sessions\.max_total_session_size"):
        await batch.write(b"x" * 401)
    await batch.discard()
    assert await filing.held() == [old]
    assert await filing.agrees() and await all_open(filing)


async def test_full_storage_ends_a_batch_and_no_other() -> None:
    """Bytes of all scopes on their way count; what one gives up is there for the next."""
    filing = Filing(total_bytes=100)
    batch = await filing.begin(b"x" * 60)
    with pytest.raises(StorageFull, match=r"storage\.max_size"):
        await filing.begin(b"x" * 41, scope=BOB)
    await batch.keep((), None)
    await filing.upload(b"x" * 40, scope=BOB)
    assert filing.registry.total == 100
    assert await filing.agrees()


async def test_full_storage_lets_expired_files_go_first() -> None:
    """Nobody is refused for the sake of files whose time is over."""
    filing = Filing(total_bytes=100)
    await filing.upload(b"x" * 100, scope=BOB)
    filing.clock.now += 101
    await filing.upload(b"y" * 100)
    assert filing.registry.total == 100
    assert await filing.agrees()


async def test_full_storage_takes_the_scopes_own_files_for_an_upload_that_will_fit() -> None:
    """The longest unused first, as many as it needs; nobody else's, and none that is in use."""
    filing = Filing(total_bytes=100)
    [theirs] = await filing.upload(b"b" * 20, scope=BOB)
    [oldest] = await filing.upload(b"o" * 20)
    release = await filing.registry.hold(oldest)
    filing.clock.now += 1
    [older] = await filing.upload(b"p" * 20)
    filing.clock.now += 1
    [newer] = await filing.upload(b"q" * 30)
    [new] = await filing.upload(b"n" * 25)
    assert await filing.held() == [oldest, newer, new] and not await filing.is_found(older)
    assert await filing.held(BOB) == [theirs]
    release()
    assert filing.registry.total == 95
    assert await filing.agrees()


@pytest.mark.parametrize("announced", [81, None])
async def test_full_storage_takes_nothing_for_an_upload_that_may_never_fit(announced: int | None) -> None:
    """Too large beside what others hold, or of a size that nobody knows."""
    filing = Filing(total_bytes=100)
    await filing.upload(b"b" * 20, scope=BOB)
    [mine] = await filing.upload(b"m" * 60)
    batch = await filing.registry.begin(ALICE, "one", announced)
    batch.add("a", None)
    with pytest.raises(StorageFull, match=r"storage\.max_size"):
        await batch.write(b"x" * 30)
    await batch.discard()
    assert await filing.held() == [mine]
    assert await filing.agrees()


async def test_more_than_was_announced_is_refused(filing: Filing) -> None:
    """A batch was let in with what it announced, so it may not bring more."""
    batch = await filing.registry.begin(ALICE, "one", 5)
    batch.add("a", None)
    with pytest.raises(UploadRefused):
        await batch.write(b"x" * 6)
    await batch.discard()
    assert await filing.agrees()


# --- what is refused in the end ---


@pytest.mark.parametrize("step", ["write", "finish", "place", "rows"])
@pytest.mark.parametrize(
    "failure", [StorageFull(), StorageFailed(), StoreUnavailable()], ids=lambda f: f.code
)
async def test_failure_at_any_step_leaves_nothing(filing: Filing, step: str, failure: AdapterError) -> None:
    """No row, no file, no reserved byte, nothing evicted, and the credential is good for another try."""
    [old] = await filing.upload(b"o" * 500)
    check, spend = await credential(filing)
    # The second of the three files, where it is a step of each file.
    filing.steps.fail(step, failure, after=0 if step == "rows" else 1)
    with pytest.raises(type(failure)):
        await filing.upload(b"1" * 200, b"2" * 200, b"3" * 200, spend=spend)
    assert await filing.held() == [old]
    assert await filing.agrees() and await all_open(filing)
    assert await check()
    filing.steps.heal(step)
    assert len(await filing.upload(b"1" * 200, b"2" * 200, b"3" * 200, spend=spend)) == 3
    assert await filing.agrees()


@pytest.mark.parametrize("step", ["write", "finish", "place", "rows", "discard", "remove"])
async def test_sender_that_goes_away_at_any_step_leaves_nothing(filing: Filing, step: str) -> None:
    """A cancelled request ends when everything is as it was before, the credential unspent."""
    [old] = await filing.upload(b"o" * 500)
    check, spend = await credential(filing)
    if step in ("discard", "remove"):
        filing.steps.fail("place", StorageFailed(), after=1)
    there, go_on = filing.steps.gate(step)
    leaving = asyncio.ensure_future(filing.upload(b"1" * 300, b"2" * 300, spend=spend))
    await there.wait()
    leaving.cancel()
    await asyncio.sleep(0)
    leaving.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    if step in ("discard", "remove"):
        filing.steps.heal("place")
    # Past the last moment to turn back, files are kept and given back: what they drove out does not come again.
    assert await filing.held() == ([] if step in ("place", "rows") else [old])
    assert await filing.agrees() and await all_open(filing)
    assert await check()


async def test_two_batches_with_one_credential(filing: Filing) -> None:
    """The one that was first is kept, the other leaves nothing – and does not free the credential again."""
    check, spend = await credential(filing)
    outcomes = await asyncio.gather(
        filing.upload(b"1" * 100, spend=spend), filing.upload(b"2" * 100, spend=spend), return_exceptions=True
    )
    kept = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert len(kept) == 1
    assert [type(outcome).__name__ for outcome in outcomes if outcome not in kept] == ["CredentialRefused"]
    assert await filing.held() == kept[0]
    assert await filing.agrees()
    with pytest.raises(AdapterError, match="used already"):
        await check()


async def test_discard_twice_and_after_keep_is_harmless(filing: Filing) -> None:
    """The end of a request may come in several ways at once."""
    batch = await filing.begin(b"1")
    [record] = await batch.keep((), None)
    await batch.discard()
    await batch.discard()
    assert await filing.is_found(record)
    unwanted = await filing.begin(b"2")
    await unwanted.discard()
    await unwanted.discard()
    assert await filing.held() == [record]
    assert await filing.agrees()


# --- many at once ---


async def test_batches_come_in_in_the_order_they_asked(filing: Filing) -> None:
    """A small one does not pass a large one that waits, so the large one's turn comes."""
    first = await filing.registry.begin(ALICE, "one", 600)
    order: list[str] = []

    async def enter(name: str, bound: int | None) -> None:
        batch = await filing.registry.begin(ALICE, "one", bound)
        order.append(name)
        await batch.discard()

    waiting = [asyncio.ensure_future(enter("large", None)), asyncio.ensure_future(enter("small", 1))]
    await asyncio.sleep(0.01)
    assert order == []
    other = await filing.registry.begin(BOB, "one", None)
    await other.discard()
    await first.discard()
    await asyncio.gather(*waiting)
    assert order == ["large", "small"]


async def test_batch_that_waited_in_vain_is_told_when_to_try_again() -> None:
    """It holds up nobody behind it either."""
    filing = Filing(queue_wait=0.01)
    first = await filing.registry.begin(ALICE, "one", 600)
    with pytest.raises(QuotaReached) as caught:
        await filing.registry.begin(ALICE, "one", 500)
    assert caught.value.retry_after
    second = await filing.registry.begin(ALICE, "one", 400)
    await first.discard()
    await second.discard()
    assert await all_open(filing)


@pytest.mark.parametrize("let_in", [False, True])
async def test_one_who_leaves_the_queue_lets_the_next_in(let_in: bool) -> None:
    """A cancelled request gives up its place, also when it was its turn at that very moment."""
    admission = UploadQueue(100, wait=30.0)
    leave = await admission.enter(ALICE.id, None)
    leaving = asyncio.ensure_future(admission.enter(ALICE.id, None))
    staying = asyncio.ensure_future(admission.enter(ALICE.id, 10))
    await asyncio.sleep(0.01)
    if let_in:
        leave()
    leaving.cancel()
    leave()
    leave_too = await asyncio.wait_for(staying, 20)
    assert leaving.cancelled()
    leave_too()
    assert repr(admission) == "<UploadQueue: 0 scopes, 0 waiting>"


async def test_waits_in_the_queue_are_told() -> None:
    """With their time, and whether the batch came in."""
    admission, told = UploadQueue(100, wait=0.01), list[tuple[float, bool]]()
    admission.on_wait = lambda seconds, entered: told.append((seconds, entered))
    leave = await admission.enter(ALICE.id, None)
    with pytest.raises(QuotaReached):
        await admission.enter(ALICE.id, None)
    waiting = asyncio.ensure_future(admission.enter(ALICE.id, 10))
    await asyncio.sleep(0)
    leave()
    (await waiting)()
    assert [entered for _, entered in told] == [False, True]
    assert told[0][0] >= 0.01


async def test_without_a_quota_nobody_waits() -> None:
    """As many come in at once as like to."""
    filing = Filing(scope_bytes=None)
    batches = [await filing.registry.begin(ALICE, "one", None) for _ in range(10)]
    for batch in batches:
        await batch.discard()


# --- a scope that ends ---


async def test_batch_of_a_scope_that_ended_comes_to_nothing(filing: Filing) -> None:
    """Whether it is still being read or about to be kept."""
    check, spend = await credential(filing)
    ready = await filing.begin(b"1")
    reading = await filing.registry.begin(ALICE, "one", 10)
    reading.add("a", None)
    await filing.registry.drop_scope(ALICE.id)
    with pytest.raises(SessionUnknown):
        await ready.keep((), spend)
    with pytest.raises(SessionUnknown):
        await reading.write(b"1")
    await ready.discard()
    await reading.discard()
    assert await filing.agrees()
    assert await check()


async def test_scope_that_ends_while_a_batch_is_kept_has_nothing_afterwards(filing: Filing) -> None:
    """The end waits for what is under way, and takes it along."""
    there, go_on = filing.steps.gate("place")
    keeping = asyncio.ensure_future(filing.upload(b"1"))
    await there.wait()
    ending = asyncio.ensure_future(filing.registry.drop_scope(ALICE.id))
    await asyncio.sleep(0)
    go_on.set()
    await keeping
    await ending
    assert await filing.held() == []
    assert await filing.agrees()
