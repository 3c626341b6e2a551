"""Rates: a window that slides, and refusals that cost nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.rate_limit import SlidingWindow


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
