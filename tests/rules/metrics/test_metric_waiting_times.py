"""Times that wait to be counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.metrics.metric import COUNTED_AT_ONCE, MOST_WAITING, WaitingTimes

Counted = list[tuple[str, list[float], list[str]]]


class Counts:
    """Waiting times, and what was counted of them."""

    def __init__(self) -> None:
        self.waiting: WaitingTimes[str] = WaitingTimes(self._count)
        self._counted: Counted = []

    def _count(self, kind: str, seconds: Sequence[float], traces: Sequence[str]) -> None:
        self._counted.append((kind, list(seconds), list(traces)))
        if kind == "broken":
            raise OSError("there is no room for this one")

    def taken(self) -> Counted:
        """What was counted since the last time."""
        counted, self._counted = self._counted, []
        return counted

    def flushed(self) -> Counted:
        """Count what waits."""
        for _ in self.waiting.flush():
            pass
        return self.taken()


def test_times_are_counted_by_kind_and_once() -> None:
    """Each with the trace that it came with."""
    counts = Counts()
    waiting = counts.waiting
    waiting.add("read", 1.0)
    waiting.add("call", 3.0, "ab")
    waiting.add("read", 2.0)
    waiting.add("call", 4.0, "")
    assert repr(waiting) == "<WaitingTimes of 2 kinds>"
    assert counts.taken() == []
    assert counts.flushed() == [("read", [1.0, 2.0], []), ("call", [3.0, 4.0], ["ab", ""])]
    assert counts.flushed() == []


def test_no_trace_is_shown_for_the_time_of_another_call() -> None:
    """Where some times of a kind came without, none has one; the next ones do."""
    counts = Counts()
    counts.waiting.add("call", 1.0)
    counts.waiting.add("call", 2.0, "ab")
    assert counts.flushed() == [("call", [1.0, 2.0], [])]
    counts.waiting.add("call", 3.0, "cd")
    assert counts.flushed() == [("call", [3.0], ["cd"])]


def test_a_kind_that_nobody_asks_for_any_more_is_forgotten() -> None:
    """Not at once: most kinds come again."""
    counts = Counts()
    counts.waiting.add("read", 1.0)
    assert counts.flushed() and "read" in counts.waiting.seconds
    assert not counts.flushed() and not counts.waiting.seconds


def test_no_more_than_a_few_times_wait() -> None:
    """Whoever adds the last one has those of its kind counted, and no others."""
    counts = Counts()
    counts.waiting.add("read", 1.0)
    for _ in range(3):
        for number in range(MOST_WAITING):
            assert counts.taken() == []
            counts.waiting.add("call", float(number), str(number))
        ((kind, seconds, traces),) = counts.taken()
        assert kind == "call" and len(seconds) == len(traces) == MOST_WAITING
    assert counts.flushed() == [("read", [1.0], [])]


def test_no_more_than_a_few_kinds_wait() -> None:
    """The oldest make room, a few at once, whatever comes and however long."""
    counts = Counts()
    for number in range(3 * MOST_WAITING):
        counts.waiting.add(f"call {number}", 1.0, "ab")
        assert len(counts.taken()) in (0, COUNTED_AT_ONCE)
        assert len(counts.waiting.seconds) == len(counts.waiting.traces) < MOST_WAITING
    assert counts.flushed()[-1] == (f"call {3 * MOST_WAITING - 1}", [1.0], ["ab"])


def test_what_cannot_be_counted_harms_nobody() -> None:
    """No call fails of it, all else is counted, nothing is counted twice, and the error is raised once."""
    counts = Counts()
    for _ in range(MOST_WAITING):
        counts.waiting.add("broken", 1.0, "ab")
    for kind in ("read", "broken", "call"):
        counts.waiting.add(kind, 2.0, "cd")
    counts.taken()
    with pytest.raises(OSError, match="no room"):
        counts.flushed()
    assert counts.taken() == [(kind, [2.0], ["cd"]) for kind in ("broken", "read", "call")]
    assert counts.flushed() == []


def test_others_may_come_while_all_is_counted() -> None:
    """Also so many kinds that those which still wait make room."""
    counts = Counts()
    for number in range(100):
        counts.waiting.add(f"old {number}", 1.0)
    for _ in counts.waiting.flush():
        for number in range(MOST_WAITING):
            counts.waiting.add(f"new {number}", 2.0)
    kinds = [kind for kind, _, _ in counts.taken()]
    assert sorted(each for each in kinds if each.startswith("old")) == sorted(
        f"old {number}" for number in range(100)
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100))), st.integers(1, 50))
def test_nothing_is_lost_or_counted_twice(times: list[tuple[str, float]], often: int) -> None:
    """However often they are counted."""
    counts = Counts()
    found: dict[str, list[float]] = {}
    for number, (kind, seconds) in enumerate([*times, ("a", 0.0)], 1):
        counts.waiting.add(kind, seconds)
        if number % often == 0 or number > len(times):
            for each, some, _ in counts.flushed():
                found.setdefault(each, []).extend(some)
    assert found == {
        kind: [seconds for each, seconds in [*times, ("a", 0.0)] if each == kind] for kind in found
    }
    assert sum(map(len, found.values())) == len(times) + 1
