"""Exchanges counted by the minute: an hour of them, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.minute_counts import MINUTES, MinuteCount, MinuteCounts, decoded, hour

NOW = 1_000_000 * 60.0


def test_exchanges_are_counted_in_the_minute_in_which_they_ended() -> None:
    """Calls of tools apart from others, and failures of both together."""
    counts = MinuteCounts(NOW)
    counts.count(NOW, is_call=True, failed=False)
    counts.count(NOW + 59, is_call=True, failed=True)
    counts.count(NOW + 60, is_call=False, failed=True)
    assert counts.last(NOW + 60) == [(1_000_000, 2, 0, 1), (1_000_001, 0, 1, 1)]
    assert repr(counts) == "<MinuteCounts of 2 minutes>"


@given(st.lists(st.integers(0, 10_000), max_size=200))
def test_an_hour_is_kept_whatever_comes(minutes: list[int]) -> None:
    """Also where the clock goes back: never more than sixty minutes, and those of the last hour are right."""
    counts = MinuteCounts(0)
    for minute in minutes:
        counts.count(minute * 60, is_call=True, failed=False)
        assert len(counts.last(minute * 60)) <= MINUTES
    now = max(minutes, default=0)
    expected = {minute: minutes.count(minute) for minute in minutes if now - minute < MINUTES}
    assert sum(each.calls for each in counts.last(now * 60)) <= sum(expected.values())
    if minutes == sorted(minutes):
        assert {each.minute: each.calls for each in counts.last(now * 60)} == expected


def test_counts_of_several_are_added_up_for_each_minute_of_the_hour() -> None:
    """Minutes without anything are there too; those before the hour and after it are not."""
    last = 1_000_000
    counts = [
        MinuteCount(minute, 1, 2, 3) for minute in (last, last, last - MINUTES + 1, last - MINUTES, last + 1)
    ]
    told = hour(counts, NOW)
    assert len(told) == MINUTES
    assert told[-1] == (last, 2, 4, 6) and told[0] == (last - MINUTES + 1, 1, 2, 3)
    assert told[1] == (last - MINUTES + 2, 0, 0, 0)


def test_what_others_wrote_is_read_back() -> None:
    """And nothing else is."""
    counts = [MinuteCount(5, 1, 2, 3)]
    assert decoded([list(each) for each in counts]) == counts
    hostile: list[object] = [None, {}, [[1]], [[1, 2, 3, -1]], [[1, 2, 3, True]], [["1", 2, 3, 4]], ["1234"]]
    for each in (*hostile, [[0] * 4] * 61):
        with pytest.raises(ValueError, match="count"):
            decoded(each)
