"""The cache of results: whose copy it is, how long it lasts, and who waits for whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapter.pipeline.result_cache import ENTRY_COST, CachedResult, Lookup, ResultCache, ResultForm, key_of

TEXTS = ResultForm(str.encode, bytes.decode)


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def find(cache: ResultCache, key: str, value: str = "", tool: str = "t") -> CachedResult:
    """The result of that key, which is ``value`` where nothing is kept."""

    async def work() -> str:
        return value

    return await cache.find(Lookup(key, tool, 30, TEXTS), work)


async def test_purge_forgets_the_tools_concerned(clock: Clock) -> None:
    """By a predicate over tool names; the number of results is told."""
    cache = ResultCache(1 << 20, clock)
    for tool in ("users.get", "users.list", "orders.list"):
        await find(cache, tool, "1", tool)
    assert cache.purge(lambda tool: tool.startswith("users.")) == 2
    assert await find(cache, "orders.list", "2") == ("1", True)
    assert await find(cache, "users.get", "2") == ("2", False)


async def test_the_longest_unused_makes_room(clock: Clock) -> None:
    """Bytes are counted with what an entry costs, and what fits nowhere is not kept."""
    cache = ResultCache(3 * (ENTRY_COST + 100), clock)
    for key in "abc":
        await find(cache, key, "x" * 50)
    await find(cache, "a")
    await find(cache, "d", "x" * 50)
    assert [(await find(cache, key, "new")).hit for key in "acd"] == [True, True, True]
    await find(cache, "big", "x" * 5000)
    assert cache.size <= 3 * (ENTRY_COST + 100)
    assert not (await find(cache, "big", "again")).hit


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


async def test_a_failure_that_is_shared_is_worked_out_once(clock: Clock) -> None:
    """All who waited get what the first one's work raised, and the next caller tries again."""
    cache, begun = ResultCache(1 << 20, clock), 0
    lookup = Lookup("k", "t", 30, TEXTS, patience=None, shares_failure=True)

    async def fail() -> str:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)
        raise ValueError("no")

    told = await asyncio.gather(*(cache.find(lookup, fail) for _ in range(20)), return_exceptions=True)
    assert [str(each) for each in told] == ["no"] * 20 and begun == 1
    with pytest.raises(ValueError, match="no"):
        await cache.find(lookup, fail)
    assert begun == 2


async def test_who_is_patient_waits_for_the_one_that_works(clock: Clock) -> None:
    """Others do the work themselves when their time is over."""
    cache, over = ResultCache(1 << 20, clock), asyncio.Event()
    slow, begun = Lookup("k", "t", 30, TEXTS, patience=None), 0

    async def work() -> str:
        nonlocal begun
        begun += 1
        await over.wait()
        return "slow"

    async def quick() -> str:
        return "quick"

    waiting = [asyncio.ensure_future(cache.find(slow, work)) for _ in range(3)]
    await asyncio.sleep(0)
    assert await cache.find(slow._replace(patience=0.01), quick) == ("quick", False)
    over.set()
    assert [each.value for each in await asyncio.gather(*waiting)] == ["slow"] * 3 and begun == 1


async def test_ten_thousand_results_stay_within_their_bytes(clock: Clock) -> None:
    """Nothing is left of what was dropped: entries, bytes and work under way add up."""
    cache = ResultCache(100_000, clock)
    for number in range(10_000):
        await find(cache, str(number), "x" * (number % 300))
    assert cache.size <= 100_000
    tasks = len(asyncio.all_tasks())
    cache.purge(lambda _: True)
    assert repr(cache) == "<ResultCache: 0 results, 0 of 100000 bytes>"
    assert tasks == 1
