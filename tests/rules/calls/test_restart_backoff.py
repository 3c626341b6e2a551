"""The pauses between starts that fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.restart_backoff import RestartBackoff


def test_pauses_double_up_to_the_longest() -> None:
    """The first failure costs the first pause; a success makes the next failure the first again."""
    backoff = RestartBackoff(1, 5)
    assert backoff.wait(0) == 0
    pauses = []
    for moment in (0, 100, 200, 300):
        backoff.failed(moment, "it fell")
        pauses.append(backoff.wait(moment))
    assert pauses == [1, 2, 4, 5]
    assert (backoff.failures, backoff.reason) == (4, "it fell")
    backoff.succeeded()
    assert backoff.wait(300) == 0
    backoff.failed(400, "again")
    assert backoff.wait(400.25) == 0.75
    assert backoff.wait(401) == 0


@given(st.integers(1, 5000), st.floats(0.01, 10), st.floats(0.01, 100))
def test_no_pause_is_longer_than_the_longest(failures: int, first: float, longest: float) -> None:
    """However often a start fails, the pause is a number and bounded."""
    backoff = RestartBackoff(first, longest)
    for _ in range(failures):
        backoff.failed(0, "")
    assert 0 < backoff.wait(0) <= longest
