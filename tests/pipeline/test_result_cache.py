"""The cache of results: whose copy it is, how long it lasts, and who waits for whom."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from adapter.pipeline.result_cache import ENTRY_COST, ResultCache, Shareable, key_of

Work = Callable[[], Awaitable[Any]]


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> ResultCache:
    return ResultCache(1 << 20, clock)


class Source:
    """Gives what it holds, counting how often it was asked; ``go`` lets it answer."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self.asked = 0
        self.cancelled = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> Any:
        self.asked += 1
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


async def test_a_result_is_worked_out_once_and_then_found(cache: ResultCache) -> None:
    """The second caller gets the same, and is told that it was there."""
    source = Source([{"id": 1, "at": datetime.date(2026, 1, 2)}])
    assert await cache.find("k", "users.get", 30, source) == (source.value, False)
    assert await cache.find("k", "users.get", 30, source) == (source.value, True)
    assert source.asked == 1


async def test_everybody_has_a_copy(cache: ResultCache) -> None:
    """What one caller does to its result, at any depth, no other one sees."""
    source = Source([{"tags": ["a"]}])
    for _ in range(3):
        value = (await cache.find("k", "t", 30, source)).value
        assert value == [{"tags": ["a"]}]
        value[0]["tags"].append("b")
        source.value = [{"tags": ["a"]}]


async def test_what_cannot_change_is_everybodys(cache: ResultCache) -> None:
    """Nobody needs a copy of it, and it weighs what it says."""
    sentence = Sentence("hello")
    for hit in (False, True, True):
        found = await cache.find("k", "t", 30, Source(sentence))
        assert found.value is sentence
        assert found.hit is hit
    assert cache.bytes == ENTRY_COST + len("hello")


class Sentence(Shareable):
    """A text that has no way to be changed."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text
        self.weight = len(text)


async def test_a_result_lasts_its_time(cache: ResultCache, clock: Clock) -> None:
    """In seconds, from when it was there; then it is worked out anew."""
    source = Source(1)
    await cache.find("k", "t", 30, source)
    clock.now = 29.9
    assert (await cache.find("k", "t", 30, source)).hit
    clock.now = 30.0
    assert not (await cache.find("k", "t", 30, source)).hit
    assert len(cache) == 1


async def test_errors_and_what_is_not_to_be_kept_are_not(cache: ResultCache) -> None:
    """H27, W6: a failure is told and forgotten; so is a result that its tool calls an error."""
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            await cache.find("k", "t", 30, Source(ValueError("bad")))
        assert not (await cache.find("k", "t", 30, Source("error"), keep=lambda value: value != "error")).hit
    assert (len(cache), cache.bytes) == (0, 0)


async def test_what_cannot_be_copied_is_passed_on(cache: ResultCache) -> None:
    """A value with a life of its own is its caller's alone."""
    value = threading.Lock()
    assert (await cache.find("k", "t", 30, Source(value))).value is value
    assert len(cache) == 0


async def test_many_who_ask_at_once_wait_for_one(cache: ResultCache) -> None:
    """Single flight: a hundred callers, one piece of work, a hundred copies."""
    source = Source(["x"])
    source.go.clear()
    calls = [asyncio.ensure_future(cache.find("k", "t", 30, source)) for _ in range(100)]
    await source.begun.wait()
    source.go.set()
    found = await asyncio.gather(*calls)
    assert source.asked == 1
    assert all(each.value == ["x"] for each in found)
    assert len({id(each.value) for each in found}) == 100


async def test_work_goes_on_while_anybody_waits(cache: ResultCache) -> None:
    """The first caller's leaving does not cost the others their result; the last one's ends the work."""
    source = Source("there")
    source.go.clear()
    calls = [asyncio.ensure_future(cache.find("k", "t", 30, source)) for _ in range(3)]
    await source.begun.wait()
    calls[0].cancel()
    calls[1].cancel()
    await asyncio.wait(calls[:2])
    assert source.cancelled == 0
    source.go.set()
    assert (await calls[2]).value == "there"


async def test_work_that_nobody_waits_for_is_cancelled(cache: ResultCache) -> None:
    """A new caller begins anew, and is not cancelled with the old work."""
    source = Source("there")
    source.go.clear()
    call = asyncio.ensure_future(cache.find("k", "t", 30, source))
    await source.begun.wait()
    call.cancel()
    await asyncio.wait([call])
    again = asyncio.ensure_future(cache.find("k", "t", 30, source))
    await asyncio.sleep(0)
    source.go.set()
    assert (await again).value == "there"
    assert (source.cancelled, source.asked) == (1, 2)


async def test_purge_forgets_the_tools_concerned(cache: ResultCache) -> None:
    """By a predicate over tool names; the number of results is told."""
    for tool in ("users.get", "users.list", "orders.list"):
        await cache.find(tool, tool, 30, Source(1))
    assert cache.purge(lambda tool: tool.startswith("users.")) == 2
    assert (await cache.find("orders.list", "orders.list", 30, Source(2))).hit
    assert not (await cache.find("users.get", "users.get", 30, Source(2))).hit


async def test_what_was_read_before_a_purge_is_not_kept_after_it(cache: ResultCache) -> None:
    """Work that began before a write may have seen the old state: its waiters get it, nobody after them."""
    old, new = Source("old"), Source("new")
    old.go.clear()
    before = asyncio.ensure_future(cache.find("k", "t", 30, old))
    await old.begun.wait()
    cache.purge(lambda _: True)
    after = asyncio.ensure_future(cache.find("k", "t", 30, new))
    await new.begun.wait()
    old.go.set()
    assert (await before).value == "old"
    assert (await after).value == "new"
    assert await cache.find("k", "t", 30, old) == ("new", True)


async def test_the_longest_unused_makes_room(clock: Clock) -> None:
    """Bytes are counted with what an entry costs, and what fits nowhere is not kept."""
    cache = ResultCache(3 * (ENTRY_COST + 100), clock)
    for key in "abc":
        await cache.find(key, "t", 30, Source("x" * 50))
    await cache.find("a", "t", 30, Source())
    await cache.find("d", "t", 30, Source("x" * 50))
    assert [(await cache.find(key, "t", 30, Source("new"))).hit for key in "acd"] == [True, True, True]
    await cache.find("big", "t", 30, Source("x" * 5000))
    assert cache.bytes <= 3 * (ENTRY_COST + 100)
    assert not (await cache.find("big", "t", 30, Source("again"))).hit


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("t", ["1"]), ("t", [1])),
        (("t", [1]), ("t", [True])),
        (("t", {"a": None}), ("t", {})),
        (("t", [float("inf")]), ("t", [None])),
        (("t", [2**64]), ("t", [float(2**64)])),
    ],
)
def test_keys_of_different_parts_differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """No joining of texts, no loss of types; the order of an object's members does not count."""
    assert key_of(*one) != key_of(*other)
    assert key_of("t", {"a": 1, "b": 2}) == key_of("t", {"b": 2, "a": 1})
    assert key_of("t", "\ufb01") != key_of("t", "fi")


async def test_ten_thousand_results_stay_within_their_bytes(clock: Clock) -> None:
    """Nothing is left of what was dropped: entries, bytes and work under way add up."""
    cache = ResultCache(100_000, clock)
    for number in range(10_000):
        await cache.find(str(number), "t", 30, Source("x" * (number % 300)))
    assert cache.bytes <= 100_000
    tasks = len(asyncio.all_tasks())
    cache.purge(lambda _: True)
    assert repr(cache) == "<ResultCache: 0 results, 0 of 100000 bytes>"
    assert tasks == 1
