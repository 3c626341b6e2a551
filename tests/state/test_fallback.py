"""A store that goes on in memory: what is served while the store is away, and what is left when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import methodcaller

import pytest
import structlog
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from adapter.errors import StoreUnavailable
from adapter.state.fallback import KEY, FallbackStore
from adapter.state.port import ABSENT, STORE_ONLY, Conflict, Delete, Put, Row, StoreListener
from adapter.state.remembered import LOCAL, RememberedRows
from adapter.state.sqlite import MemoryStore
from adapter.state.watched import WatchedStore
from tests.state.shared import ReplicaStore, SharedMemory

SOON = 0.01


class Returned(StoreListener):
    """Waits for the store to be back; ``unknown`` counts how often all rows may be old."""

    def __init__(self) -> None:
        self.unknown = 0
        self.back = asyncio.Event()

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self.unknown += 1
        self.back.set()


def logger(capture: LogCapture) -> FilteringBoundLogger:
    wrapper = structlog.make_filtering_bound_logger(0)
    bound: FilteringBoundLogger = structlog.wrap_logger(None, processors=[capture], wrapper_class=wrapper)
    return bound


class AwayStore(ReplicaStore):
    """Cannot be opened while it is ``down``."""

    async def open(self) -> None:
        """See Store."""
        if self.down:
            raise StoreUnavailable()
        await super().open()


class SlowStore(AwayStore):
    """What it reads is on its way for as long as ``on_its_way`` takes."""

    async def get(self, table: str, key: str) -> Row | None:
        """See Store."""
        row = await super().get(table, key)
        await self.on_its_way(key)
        return row

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        """See Store."""
        rows = await super().scan(table, group=group, after=after, limit=limit)
        await self.on_its_way(rows[-1].key)
        return rows

    async def on_its_way(self, key: str) -> None:
        """Another replica writes the row meanwhile, and its word is heard."""
        await self._memory.rows.put("t", key, b"new")
        self._memory.replicas[0]._tell_others(methodcaller("row_changed", "t", key))
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class Process:
    """A process with a store that may go away, and the rows that it shares with others."""

    def __init__(self, shared: SharedMemory, retry: float = SOON) -> None:
        self.shared = shared
        self.inner = AwayStore(shared)
        self.log = LogCapture()
        self.store = FallbackStore(self.inner, logger(self.log), retry=retry)
        self.listener = Returned()
        self.store.listeners.append(self.listener)

    async def back(self) -> None:
        """Let the store be reached again, and wait until it is used."""
        self.inner.down = False
        async with asyncio.timeout(10):
            await self.listener.back.wait()


@asynccontextmanager
async def running(
    shared: SharedMemory | None = None, *, down: bool = False, retry: float = SOON
) -> AsyncIterator[Process]:
    process = Process(shared or SharedMemory(), retry)
    process.inner.down = down
    await process.store.open()
    try:
        yield process
    finally:
        await process.store.close()


async def test_everything_goes_through_while_the_store_is_there() -> None:
    """Rows, conflicts and times are those of the store; nothing is kept back."""
    async with running() as process:
        store = process.store
        row = await store.put("t", "g/a", b"1", due=5.0)
        assert await store.get("t", "g/a") == row == await process.shared.rows.get("t", "g/a")
        with pytest.raises(Conflict):
            await store.put("t", "g/a", b"2", expected=ABSENT)
        await store.commit([Put("t", "g/b", b"2"), Delete("t", "g/a")])
        await store.touch("t", {"g/b": 7.0})
        assert [each.due for each in await store.scan("t", group="g")] == [7.0]
        assert await store.count("t") == 1 and [each.key for each in await store.overdue("t", 9)] == ["g/b"]
        assert await store.delete("t", "g/b") and not await process.shared.rows.count("t")
        assert store.outage is None and store.reason() is None and store.shared and "in use" in repr(store)


async def test_known_rows_are_served_and_changed_while_the_store_is_away() -> None:
    """A row that was read goes on; what is written is written back, with its times, when the store is back."""
    async with running() as process:
        store = process.store
        known = await store.put("sessions", "a", b"open")
        process.inner.down = True
        assert await store.get("sessions", "a") == known
        assert store.reason() == "fallback_memory_activated_by_state_store"
        changed = await store.put("sessions", "a", b"renewed", expected=known.version)
        assert changed.version > LOCAL
        await store.put("sessions", "b", b"new", expected=ABSENT)
        await store.touch("sessions", {"b": 50.0, "a": 40.0})
        assert {row.key for row in await store.scan("sessions")} == {"a", "b"}
        assert await store.count("sessions") == 2
        assert [row.key for row in await store.overdue("sessions", 45.0)] == ["a"]
        store.announce("topic", b"nobody hears it")
        await process.back()
        assert (
            process.log.entries[-1]["event"] == "the state store is back"
            and process.log.entries[-1]["lost"] == {}
        )
        rows = {row.key: (row.value, row.due) for row in await process.shared.rows.scan("sessions")}
        assert rows == {"a": (b"renewed", 40.0), "b": (b"new", 50.0)}
        assert store.reason() is None and process.listener.unknown == 1


async def test_changes_of_others_win_and_are_counted_as_lost() -> None:
    """A row that another process changed meanwhile stays as that one left it; the log tells how many of a table."""
    shared = SharedMemory()
    async with running(shared) as process, running(shared) as other:
        row = await process.store.put("sessions", "a", b"0")
        process.inner.down = process.inner.deaf = True
        await process.store.put("sessions", "a", b"mine", expected=row.version)
        await process.store.put("nonces", "n", b"", expected=ABSENT)
        await other.store.put("sessions", "a", b"theirs")
        await other.store.put("nonces", "n", b"x", expected=ABSENT)
        await process.back()
        assert process.log.entries[-1]["lost"] == {"sessions": 1, "nonces": 1}
        found = await process.store.get("sessions", "a")
        assert found is not None and found.value == b"theirs"


async def test_what_was_revoked_elsewhere_is_not_served() -> None:
    """From the moment the word arrives, before and during an outage, the row counts as absent."""
    shared = SharedMemory()
    async with running(shared) as process, running(shared) as other:
        for key in ("a", "b", "c"):
            await process.store.put("sessions", key, b"open")
        await other.store.delete("sessions", "a")
        await asyncio.sleep(0)
        process.inner.down = True
        assert await process.store.get("sessions", "a") is None
        await other.store.put("sessions", "b", b"revoked")
        await asyncio.sleep(0)
        assert await process.store.get("sessions", "b") is None
        process.inner.unsure()
        assert await process.store.get("sessions", "c") is not None
        await process.back()


async def test_ends_are_written_back_whatever_was_done_elsewhere() -> None:
    """A row that was deleted here is deleted in the store, also one that this process did not know."""
    shared = SharedMemory()
    async with running(shared) as process, running(shared) as other:
        row = await process.store.put("sessions", "a", b"0")
        await other.store.put("pins", "x", b"0")
        process.inner.down = process.inner.deaf = True
        assert await process.store.delete("sessions", "a", expected=row.version)
        assert not await process.store.delete("pins", "x")
        await other.store.put("sessions", "a", b"1")
        await process.back()
        assert await shared.rows.get("sessions", "a") is None and await shared.rows.get("pins", "x") is None


async def test_rows_of_one_step_come_back_together() -> None:
    """If one of the rows that were changed together was changed elsewhere, all of them are lost."""
    shared = SharedMemory()
    async with running(shared) as process, running(shared) as other:
        await process.store.commit([Put("quota", "g", b"1"), Put("files", "g/a", b"a")])
        process.inner.down = process.inner.deaf = True
        await process.store.commit([Put("quota", "g", b"2"), Put("files", "g/b", b"b", expected=ABSENT)])
        await process.store.commit([Put("quota", "h", b"1"), Put("files", "h/b", b"b", expected=ABSENT)])
        await other.store.put("quota", "g", b"3")
        with pytest.raises(Conflict):
            await process.store.commit([Put("files", "i", b""), Put("files", "i", b"", expected=ABSENT)])
        await process.back()
        assert process.log.entries[-1]["lost"] == {"quota": 1, "files": 1}
        assert [row.key for row in await shared.rows.scan("files")] == ["g/a", "h/b"]


async def test_write_that_was_done_although_it_failed_is_not_a_conflict() -> None:
    """The version that this process itself has left is the one it goes on from."""
    async with running() as process:
        first = await process.store.put("t", "a", b"0")
        process.inner.swallows = 1
        row = await process.store.put("t", "a", b"1", expected=first.version)
        assert row.version > LOCAL and process.store.outage is not None
        await process.store.put("t", "a", b"2", expected=row.version)
        await process.back()
        assert process.log.entries[-1]["lost"] == {}
        found = await process.shared.rows.get("t", "a")
        assert found is not None and (found.value, found.version) == (b"2", 3)


async def test_version_of_an_outage_never_fits_the_store() -> None:
    """Whoever holds a row of the outage has to read it again when the store is back."""
    async with running() as process:
        process.inner.down = True
        row = await process.store.put("t", "a", b"1")
        await process.back()
        with pytest.raises(Conflict):
            await process.store.put("t", "a", b"2", expected=row.version)


async def test_outage_in_the_middle_of_writing_back_loses_nothing() -> None:
    """What is not written back yet stays in memory until the next attempt."""
    async with running() as process:
        process.inner.down = True
        for number in range(5):
            await process.store.put("t", str(number), b"x")

        async def fail_at_third(table: str, key: str) -> None:
            if (table, key) == ("t", "3"):
                process.inner.before = None
                raise StoreUnavailable()

        process.inner.before = fail_at_third
        await process.back()
        assert await process.shared.rows.count("t") == 5


async def test_row_that_changes_while_it_is_written_back_is_written_again() -> None:
    """The last value counts, and it goes on from the version that was just written."""
    async with running() as process:
        process.inner.down = True
        await process.store.put("t", "a", b"1")

        async def change(table: str, key: str) -> None:
            if table == "t":
                process.inner.before = None
                await process.store.put("t", "a", b"2")

        process.inner.before = change
        await process.back()
        row = await process.shared.rows.get("t", "a")
        assert row is not None and row.value == b"2" and row.version == 2


async def test_store_that_is_away_at_start_makes_everything_of_that_time_lost() -> None:
    """Ids and links rested on secrets that the store has not seen, so they are read again and nothing is kept."""
    shared = SharedMemory()
    await shared.rows.put("secrets", "scope", b"theirs")
    async with running(shared, down=True) as process:
        read: list[bytes] = []

        async def read_again() -> None:
            row = await process.store.get("secrets", "scope")
            read.append(row.value if row else b"")

        process.store.on_return.append(read_again)
        assert process.store.reason() == "fallback_memory_activated_during_startup"
        await process.store.put("secrets", "scope", b"mine", expected=ABSENT)
        await process.back()
        assert read == [b"theirs"] and process.log.entries[-1]["lost"] == {"secrets": 1}
        assert (await shared.rows.scan("health"))[0].key == KEY


@pytest.mark.parametrize("is_back", [True, False], ids=["back", "away"])
async def test_close_writes_back_what_it_can(is_back: bool) -> None:
    """A store that is back when the process stops gets what it missed; one that is not is named in the log."""
    shared = SharedMemory()
    async with running(shared, retry=3600.0) as process:
        process.inner.down = True
        await process.store.put("t", "a", b"1")
        process.inner.down = not is_back
    assert process.log.entries[-1]["lost"] == ({} if is_back else {"t": 1})
    assert await shared.rows.count("t") == is_back


async def test_many_rows_are_known_up_to_a_bound() -> None:
    """The rows that were used last are left when the store fails; older ones count as absent."""
    inner = MemoryStore()
    rows = RememberedRows(most=3, most_bytes=100)
    store = FallbackStore(inner, logger(LogCapture()), rows)
    for key in "abcd":
        await store.put("t", key, b"x" * 10)
    await store.put("t", "large", b"x" * 101)
    await store.put("t", "b", b"x" * 60)
    assert {row.key for row in await rows.scan("t")} == {"b", "c", "d"}
    await store.put("t", "e", b"x" * 35)
    assert {row.key for row in await rows.scan("t")} == {"b", "e"} and "2 known" in repr(rows)


async def test_work_that_needs_all_rows_gets_none_of_an_outage() -> None:
    """A row that is not known looks as if it were gone, and a cleanup would delete what belongs to it."""
    async with running() as process:
        await process.store.put("t", "a", b"1")
        process.inner.down = True

        async def clean() -> None:
            STORE_ONLY.set(True)
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await process.store.get("t", "a")
            for work in (
                process.store.scan("t"),
                process.store.overdue("t", 9.0),
                process.store.count("t"),
                process.store.delete("t", "a"),
                process.store.touch("t", {}),
                process.store.spend("t", "a", 1, 1.0),
            ):
                with pytest.raises(StoreUnavailable):
                    await work

        await asyncio.create_task(clean())
        assert await process.store.get("t", "a") is not None
        assert await process.store.spend("uses", "a", 1, 60.0) == 0.0
        await process.back()
        assert await process.store.spend("uses", "a", 1, 60.0) == 0.0


async def test_watched_store_tells_of_the_outage() -> None:
    """Health has a word for it, although everything can be written."""
    async with running() as process:
        watched = WatchedStore(process.store, outage=process.store.reason)
        assert watched.outage() is None
        process.inner.down = True
        assert await watched.failure() is None
        assert watched.outage() == "fallback_memory_activated_by_state_store"
        await process.back()


async def test_what_was_made_and_taken_back_here_is_not_taken_from_others() -> None:
    """A one-time link that this process used and gave back, and that another one has used meanwhile, stays used."""
    shared = SharedMemory()
    async with running(shared) as process, running(shared) as other:
        known = await process.store.put("sessions", "s", b"open")
        process.inner.down = process.inner.deaf = True
        assert await process.store.get("nonces", "n") is None
        await process.store.put("nonces", "n", b"", expected=ABSENT)
        await other.store.put("nonces", "n", b"", expected=ABSENT)
        await process.store.delete("nonces", "n")
        await process.store.delete("sessions", "s", expected=known.version)
        await process.back()
        assert await shared.rows.get("nonces", "n") is not None
        assert await shared.rows.get("sessions", "s") is None


async def test_what_was_perhaps_made_in_the_store_is_taken_back_there() -> None:
    """The write that met the end of the store may have been done."""
    async with running() as process:
        process.inner.swallows = 1
        await process.store.put("nonces", "n", b"", expected=ABSENT)
        assert process.store.outage is not None
        await process.store.delete("nonces", "n")
        await process.back()
        assert await process.shared.rows.get("nonces", "n") is None


@pytest.mark.parametrize("reads", ["get", "scan"])
async def test_read_that_a_change_has_overtaken_is_not_remembered(reads: str) -> None:
    """The word of the change was there before the row as it was; what came with it is known."""
    shared = SharedMemory()
    other, inner = shared.replica(), SlowStore(shared)
    store = FallbackStore(inner, logger(LogCapture()), retry=3600.0)
    await store.open()
    for key in ("a", "b"):
        await other.put("t", key, b"old")
    if reads == "get":
        assert await store.get("t", "b") is not None
    else:
        assert [row.value for row in await store.scan("t")] == [b"old", b"old"]
    inner.down = True
    assert await store.get("t", "b") is None
    assert (await store.get("t", "a") is not None) == (reads == "scan")
    await store.close()


async def test_store_that_fails_again_while_it_returns_is_returned_to_once() -> None:
    """What was to be read again is, when the store is back for the second time; a stop leaves nothing running."""
    shared = SharedMemory()
    process = Process(shared)
    reads = 0
    failed, done = asyncio.Event(), asyncio.Event()

    async def read_again() -> None:
        nonlocal reads
        reads += 1
        if reads == 1:
            process.inner.down = True
            await process.store.get("t", "a")
            failed.set()
            # Longer than a second attempt to return takes.
            for _ in range(3):
                await asyncio.sleep(SOON)
            raise StoreUnavailable()
        done.set()

    process.store.on_return.append(read_again)
    process.inner.down = True
    await process.store.open()
    process.inner.down = False
    async with asyncio.timeout(10):
        await failed.wait()
        process.inner.down = False
        await done.wait()
        await process.listener.back.wait()
    assert (reads, process.store.outage) == (2, None)
    events = [entry["event"] for entry in process.log.entries]
    assert events == ["the state store failed; going on in memory", "the state store is back"] * 2
    await process.store.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_rows_that_the_store_has_lost_are_not_served_when_it_fails() -> None:
    """They are remembered for an outage, but nobody else has them any more."""
    shared = SharedMemory()
    async with running(shared, retry=3600.0) as process:
        await process.store.put("t", "a", b"1")
        shared.rows = MemoryStore()
        process.store.store_lost()
        process.inner.down = True
        assert await process.store.get("t", "a") is None
