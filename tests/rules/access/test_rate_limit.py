"""Rates: a window that slides, and refusals that cost nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.rate_limit import Floor, Pace, SlidingWindow


def test_v21_a_window_slides() -> None:
    """As soon as the oldest call is a window old, the next may come."""
    window = SlidingWindow(2, 10)
    assert [window.admit("a", now) for now in (0, 4, 5)] == [None, None, 5]
    assert window.admit("a", 9.5) == 0.5
    assert window.admit("a", 10) is None
    assert window.admit("a", 10) == 4
    assert window.admit("b", 10) is None
    assert repr(window) == "<SlidingWindow of 2 in 10 s: 2 keys>"


def test_v21_rejected_calls_do_not_count() -> None:
    """However often a caller knocks, it gets in when it was told."""
    window = SlidingWindow(1, 10)
    assert window.admit("a", 0) is None
    assert [window.admit("a", now) for now in range(1, 10)] == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert window.admit("a", 10) is None


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=60))
def test_v21_no_window_ever_holds_more_than_it_may(most: int, steps: list[tuple[int, str]]) -> None:
    """And whoever waits as told is let in."""
    window, now = SlidingWindow(most, 5), 0
    admitted: dict[str, list[int]] = {"a": [], "b": []}
    for step, key in steps:
        now += step
        wait = window.admit(key, now)
        if wait is None:
            admitted[key].append(now)
        else:
            assert 0 < wait <= 5
            assert len([moment for moment in admitted[key] if moment > now + wait - 5]) < most
        assert len([moment for moment in admitted[key] if moment > now - 5]) <= most


def test_v21_keys_that_no_longer_count_are_forgotten() -> None:
    """Ten thousand callers that came once leave nothing behind."""
    window = SlidingWindow(3, 10)
    for number in range(10_000):
        window.admit(number, number)
    assert len(window) <= 12


@pytest.mark.parametrize(("most", "seconds"), [(0, 1), (1, 0)])
def test_a_rate_that_is_none_is_refused(most: int, seconds: float) -> None:
    """A mistake in settings does not lock everybody out."""
    with pytest.raises(ValueError, match="at least one call"):
        SlidingWindow(most, seconds)


# --- the least speed of a body ---------------------------------------------------------------------------------


FLOOR = Floor(rate=100, window=10, grace=5)


def test_a_body_above_the_floor_may_take_for_ever() -> None:
    """However long it is."""
    pace = Pace(FLOOR)
    assert not any(pace.is_too_slow(1, 100 * second) for second in range(1, 1000))


def test_a_body_below_the_floor_is_noticed_with_its_first_window() -> None:
    """The grace does not count, then each window does."""
    pace = Pace(FLOOR)
    slow = [second for second in range(1, 100) if pace.is_too_slow(1, 99 * second)]
    assert slow[0] == 15


def test_a_burst_does_not_pay_for_later_windows() -> None:
    """A megabyte at once and then a byte a second is too slow all the same."""
    pace = Pace(FLOOR)
    assert [second for second in range(1, 40) if pace.is_too_slow(1, 1_000_000 + second)] == [15, 25, 35]


def test_what_came_while_nobody_waited_counts() -> None:
    """A reader that is busy with something else does not make its sender slow."""
    pace = Pace(FLOOR)
    assert not any(pace.is_too_slow(9, 10_000 * turn) for turn in range(1, 50))


@given(st.lists(st.tuples(st.floats(0, 60), st.integers(0, 10_000))))
def test_a_floor_of_nothing_allows_any_speed(waits: list[tuple[float, int]]) -> None:
    """Turned off, no body is ever too slow."""
    pace, arrived = Pace(Floor(rate=0, window=10, grace=5)), 0
    for waited, size in waits:
        arrived += size
        assert not pace.is_too_slow(waited, arrived)
