"""Results of tools that replicas share: found everywhere, worked out once, and stale everywhere at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapter.pipeline.result_cache import Lookup, ResultForm
from adapter.relay.background import BackgroundTasks
from adapter.relay.shared_results import BUCKETS, KEPT_PURGES, MOST, PURGES, TABLE, SharedResults
from adapter.rules.presenters.state_sync import Invalidation
from adapter.rules.text.expressions import Glob
from tests.relay.relaying import Clock
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until

KEY = "ab" * 32


class Replica:
    """A replica that asks for results of one tool."""

    def __init__(self, memory: SharedMemory, clock: Clock, patience: float = 5.0) -> None:
        self.store: ReplicaStore = memory.replica()
        self.background = BackgroundTasks()
        self.results = SharedResults(self.store, self.background, caches=True, patience=patience, clock=clock)
        self.server = self.results.results_of("one", 100 * BUCKETS * MOST)
        self.worked = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.answer: Any = "rows"

    async def work(self) -> Any:
        self.worked += 1
        self.begun.set()
        await self.go.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def ask(self, key: str = KEY) -> tuple[Any, bool]:
        value, hit = await self.server.find(Lookup(key, "list", 60.0, ResultForm(encode, decode)), self.work)
        await self.idle()
        return value, hit

    async def idle(self) -> None:
        """Wait until everything is written down."""
        while self.background._running:
            await asyncio.gather(*self.background._running)


def encode(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def decode(text: bytes) -> str:
    return text.decode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replicas(clock: Clock) -> tuple[Replica, Replica]:
    memory = SharedMemory()
    return Replica(memory, clock), Replica(memory, clock)


def stale(*patterns: str) -> Invalidation:
    return Invalidation("save", tuple(map(Glob, patterns)))


async def test_result_of_one_is_found_by_the_other(replicas: tuple[Replica, Replica]) -> None:
    """The second replica does no work, and asks the store once."""
    one, other = replicas
    assert await one.ask() == ("rows", False)
    assert await other.ask() == ("rows", True)
    # Both rows are asked for at the same time.
    assert other.store.calls == {"get": 2} and other.worked == 0
    assert "0 results waited for" in repr(other.results)


@pytest.mark.parametrize("deaf", [False, True], ids=["by word", "by looking"])
async def test_of_many_who_ask_at_once_one_works(replicas: tuple[Replica, Replica], deaf: bool) -> None:
    """The others wait for it, on its own replica and elsewhere, whether the word of it arrives or not."""
    one, other = replicas
    other.store.deaf = deaf
    one.go.clear()
    leading = asyncio.ensure_future(one.ask())
    await one.begun.wait()
    following = [asyncio.ensure_future(each.ask()) for each in (one, other, other)]
    await until(lambda: other.results._changes)
    one.go.set()
    assert await leading == ("rows", False)
    assert [value for value, _ in await asyncio.gather(*following)] == ["rows"] * 3
    assert one.worked + other.worked == 1


async def test_failure_is_its_callers_own(replicas: tuple[Replica, Replica]) -> None:
    """Who waited for it does the work itself, and nothing is kept."""
    one, other = replicas
    one.go.clear()
    one.answer = ValueError("no")
    leading = asyncio.ensure_future(one.ask())
    await one.begun.wait()
    following = asyncio.ensure_future(other.ask())
    await until(lambda: other.results._changes)
    one.go.set()
    with pytest.raises(ValueError, match="no"):
        await leading
    await one.idle()
    assert await following == ("rows", False) and other.worked == 1
    assert await one.store.count(TABLE) == 0


async def test_who_went_away_is_replaced(clock: Clock) -> None:
    """After its patience a caller takes over what another replica began and never ended."""
    memory = SharedMemory()
    gone, other = Replica(memory, clock), Replica(memory, clock, patience=0.05)
    gone.go.clear()
    leading = asyncio.ensure_future(gone.ask())
    await gone.begun.wait()
    assert await other.ask() == ("rows", False)
    leading.cancel()
    await asyncio.wait((leading,))
    await gone.idle()
    # What the first one gave up was not its own any more.
    assert await other.ask() == ("rows", True)


async def test_results_that_must_not_be_kept_are_not(replicas: tuple[Replica, Replica]) -> None:
    """Large ones, and those that are no text, are given to their caller alone."""
    one, other = replicas
    one.answer = "x" * 101
    await one.ask()
    one.answer = 5
    await one.ask()
    assert one.worked == 2 and await one.store.count(TABLE) == 0
    assert await other.ask() == ("rows", False)


async def test_old_result_is_worked_out_again(replicas: tuple[Replica, Replica], clock: Clock) -> None:
    """A result is as old as its tool allows, and the cleanup deletes it then."""
    one, other = replicas
    await one.ask()
    clock.now += 61
    assert await other.ask() == ("rows", False)
    clock.now += 61
    await one.results.tidy()
    assert await one.store.count(TABLE) == 0


async def test_purge_counts_at_once_and_everywhere(replicas: tuple[Replica, Replica]) -> None:
    """What a call made stale no replica serves from the moment it is answered; other tools stay."""
    one, other = replicas
    await one.ask()
    await other.results.purge(stale("save"))
    assert await one.ask() == ("rows", True)
    await other.results.purge(stale("li*"))
    assert await one.ask() == ("rows", False)
    assert await other.ask() == ("rows", True)


async def test_purge_during_the_work_makes_its_result_stale(replicas: tuple[Replica, Replica]) -> None:
    """The work may have read what was true before."""
    one, other = replicas
    one.go.clear()
    leading = asyncio.ensure_future(one.ask())
    await one.begun.wait()
    await other.results.purge(stale("list"))
    one.go.set()
    await leading
    assert await other.ask() == ("rows", False)


async def test_only_so_many_purges_are_remembered(replicas: tuple[Replica, Replica]) -> None:
    """A result that is older than all of them counts as stale, and two writers lose none of them."""
    one, other = replicas
    await one.ask()
    for _ in range(KEPT_PURGES // 2):
        await asyncio.gather(one.results.purge(stale("x")), other.results.purge(stale("y")))
    assert await other.ask() == ("rows", True)
    await one.results.purge(stale("x"))
    assert await other.ask() == ("rows", False)
    (row,) = await one.store.scan(PURGES)
    assert row.value.startswith(b"[%d," % (KEPT_PURGES + 1))


async def test_number_of_results_is_bounded(replicas: tuple[Replica, Replica]) -> None:
    """A bucket that is full keeps nothing more; its callers do their work."""
    one, _ = replicas
    for number in range(MOST + 2):
        await one.ask(f"{BUCKETS:08x}{number:056x}")
    assert one.worked == MOST + 2 and await one.store.count(TABLE) == MOST


async def test_store_that_fails_makes_no_call_fail(replicas: tuple[Replica, Replica]) -> None:
    """Each caller does its own work, once, also where the store fails behind it."""
    one, _ = replicas
    one.store.down = True
    assert await one.ask() == ("rows", False)
    one.store.down = False
    one.go.clear()
    asking = asyncio.ensure_future(one.ask())
    one.begun.clear()
    await one.begun.wait()
    one.store.down = True
    one.go.set()
    assert await asking == ("rows", False) and one.worked == 2


async def test_rows_of_other_versions_are_passed_over(replicas: tuple[Replica, Replica]) -> None:
    """What cannot be read is worked out and written anew; words about other rows change nothing."""
    one, other = replicas
    await one.ask()
    (row,) = await one.store.scan(TABLE)
    await one.store.put(TABLE, row.key, b"D0 \xff", due=row.due)
    assert await other.ask() == ("rows", False)
    assert await one.ask() == ("rows", True)
    one.results.row_changed("sessions", row.key)
    one.results.announced("topic", b"")
    one.results.rows_unknown()
