"""Times that wait to be counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.metrics.waiting_times import MOST_WAITING, WaitingTimes


def taken(waiting: WaitingTimes[str]) -> dict[str, tuple[list[float], list[str]]]:
    return {kind: (seconds.copy(), list(traces)) for kind, seconds, traces in waiting.take()}


def test_times_are_taken_by_kind_and_once() -> None:
    """Each with the trace that it came with."""
    waiting: WaitingTimes[str] = WaitingTimes()
    assert not waiting.add("read", 1.0) and not waiting.add("read", 2.0)
    assert not waiting.add("call", 3.0, "ab") and not waiting.add("call", 4.0, "")
    assert repr(waiting) == "<WaitingTimes of 2 kinds>"
    assert taken(waiting) == {"read": ([1.0, 2.0], []), "call": ([3.0, 4.0], ["ab", ""])}
    assert taken(waiting) == {}


def test_a_kind_that_nobody_asks_for_any_more_is_forgotten() -> None:
    """Not at once: most kinds come again."""
    waiting: WaitingTimes[str] = WaitingTimes()
    waiting.add("read", 1.0)
    assert taken(waiting) and "read" in waiting.seconds
    assert not taken(waiting) and not waiting.seconds


def test_no_more_than_a_few_times_and_kinds_wait() -> None:
    """Whoever adds the last one is told, and all can be taken many times."""
    waiting: WaitingTimes[str] = WaitingTimes()
    for _ in range(3):
        assert [waiting.add("call", 1.0) for _ in range(MOST_WAITING)].index(True) == MOST_WAITING - 1
        assert len(taken(waiting)["call"][0]) == MOST_WAITING
    assert not taken(waiting)
    for _ in range(3):
        told = [waiting.add(f"call {number}", 1.0) for number in range(MOST_WAITING)]
        assert told.index(True) == MOST_WAITING - 1
        assert len(taken(waiting)) == MOST_WAITING and not waiting.seconds


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100))), st.integers(1, 50))
def test_nothing_is_lost_or_taken_twice(times: list[tuple[str, float]], often: int) -> None:
    """However often they are taken."""
    waiting: WaitingTimes[str] = WaitingTimes()
    found: dict[str, list[float]] = {}
    for number, (kind, seconds) in enumerate([*times, ("a", 0.0)], 1):
        waiting.add(kind, seconds)
        if number % often == 0 or number > len(times):
            for each, (some, _) in taken(waiting).items():
                found.setdefault(each, []).extend(some)
    assert found == {
        kind: [seconds for each, seconds in [*times, ("a", 0.0)] if each == kind] for kind in found
    }
    assert sum(map(len, found.values())) == len(times) + 1
