"""A measured store: what it is asked, how that ended, and what the cleanup removes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from adapter.errors import StoreUnavailable
from adapter.rules.metrics.catalogue import CLEANUP_REMOVED, STORE_DURATION
from adapter.rules.metrics.metric import Metric
from adapter.state.port import ABSENT, STORE_ONLY, Conflict, Delete, Put
from adapter.state.watched import MeasuredStore
from tests.state.shared import SharedMemory


class Numbers:
    """A MetricSink that remembers how often each metric was counted with its labels."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Metric, tuple[str, ...]]] = Counter()

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        self.counts[metric, labels] += int(by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        assert value >= 0
        self.counts[metric, labels] += 1

    def observe_all(
        self, metric: Metric, values: Sequence[float], *labels: str, traces: Sequence[str] = ()
    ) -> None:
        assert not traces
        self.counts[metric, labels] += len(values)

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        self.counts[metric, labels] = int(value)


async def test_every_operation_is_counted_with_its_result() -> None:
    """Conflicts and failures apart from what succeeded."""
    numbers, behind = Numbers(), SharedMemory().replica()
    store = MeasuredStore(behind, numbers)
    assert store.shared and store.listeners is behind.listeners
    await store.open()
    row = await store.put("notes", "a", b"1", expected=ABSENT)
    assert await store.get("notes", "a") == row
    with pytest.raises(Conflict):
        await store.put("notes", "a", b"2", expected=ABSENT)
    assert await store.commit([Put("notes", "b", b"3", None, ABSENT)])
    await store.touch("notes", {"a": 5.0})
    assert len(await store.scan("notes")) == await store.count("notes") == 2
    assert [each.key for each in await store.overdue("notes", 9.0)] == ["a"]
    assert await store.spend("uses", "a", 1, 60) == 0
    assert await store.delete("notes", "a")
    behind.down = True
    with pytest.raises(StoreUnavailable):
        await store.get("notes", "a")
    results = {
        labels: count for (metric, labels), count in numbers.counts.items() if metric is STORE_DURATION
    }
    once = ("open", "get", "put", "commit", "touch", "scan", "count", "overdue", "spend", "delete")
    expected = dict.fromkeys(((each, "ok") for each in once), 1)
    assert results == {**expected, ("put", "conflict"): 1, ("get", "unavailable"): 1}
    assert repr(store).startswith("<MeasuredStore of ")


async def test_what_the_cleanup_removes_is_counted_by_table() -> None:
    """And nothing that others delete."""
    numbers = Numbers()
    store = MeasuredStore(SharedMemory().replica(), numbers)
    for key in "abcd":
        await store.put("notes", key, b"1")

    async def cleanup() -> None:
        STORE_ONLY.set(True)
        assert await store.delete("notes", "a")
        assert not await store.delete("notes", "a")
        await store.commit([Delete("notes", "b")])

    await asyncio.create_task(cleanup())
    assert await store.delete("notes", "c")
    assert numbers.counts[CLEANUP_REMOVED, ("notes",)] == 2
