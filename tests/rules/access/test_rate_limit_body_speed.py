"""The least speed of a body."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.rate_limit import Floor, Pace

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
