"""The breaker: every cell of its table, its counts, and any history at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adapter.rules.calls.circuit_breaker import (
    TRANSITIONS,
    Breaker,
    BreakerEvent,
    BreakerState,
    RestartBackoff,
    advance,
)
from tests.rules.transitions import assert_is_printed

_TABLE = """
            succeeded  failed     failed_too_often  cooled_down
closed      closed     closed     open              -
open        open       open       -                 half_open
half_open   closed     open       -                 -
"""


def test_the_table_is_the_printed_one() -> None:
    """Every pair of a state and an event; a cell that is empty raises."""
    assert_is_printed(_TABLE, BreakerState, BreakerEvent, TRANSITIONS, advance)


def _opened(at: float = 100.0, *, probes: int = 2) -> Breaker:
    breaker = Breaker(failure_threshold=3, open_cooldown=30.0, half_open_probes=probes)
    for _ in range(3):
        breaker.failed(at)
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_consecutive_failures_open_it() -> None:
    """A success in between starts the count anew; the third failure in a row opens it."""
    breaker = Breaker(failure_threshold=3, open_cooldown=30.0, half_open_probes=1)
    for outcome in (breaker.failed, breaker.failed, breaker.succeeded, breaker.failed, breaker.failed):
        outcome(0.0)
    assert breaker.allows_calls()
    breaker.failed(0.0)
    assert not breaker.allows_calls()
    assert breaker.failures == 3


def test_retry_after_counts_down_to_one_second() -> None:
    """What a refused client is told shrinks with the cool-down, and is never less than a second."""
    breaker = _opened(100.0)
    assert breaker.retry_after(100.0) == 30.0
    assert breaker.retry_after(120.0) == 10.0
    assert breaker.retry_after(129.5) == 1.0
    assert breaker.retry_after(500.0) == 1.0


def test_it_is_probed_only_after_the_cool_down() -> None:
    """Before it no probe may start, from then on it is half-open, and still no call goes through."""
    breaker = _opened(100.0)
    assert not breaker.may_probe(129.9)
    assert repr(breaker) == "<Breaker open: 3 failures, 0 probes>"
    assert breaker.may_probe(130.0)
    assert repr(breaker) == "<Breaker half_open: 3 failures, 0 probes>"
    assert not breaker.allows_calls()


def test_half_open_lets_only_so_many_probes_run_at_once() -> None:
    """The allowance counts probes under way; one that was cancelled gives its place back."""
    breaker = _opened(100.0, probes=2)
    for _ in range(2):
        assert breaker.may_probe(130.0)
        breaker.probe_started()
    assert not breaker.may_probe(130.0)
    breaker.probe_abandoned()
    assert breaker.may_probe(130.0)


def test_a_probe_that_succeeds_closes_it() -> None:
    """Calls go through again at once, with no failure held against the upstream."""
    breaker = _opened(100.0)
    assert breaker.may_probe(130.0)
    breaker.probe_started()
    breaker.succeeded(131.0)
    assert breaker.allows_calls()
    assert breaker.failures == 0


def test_a_probe_that_fails_opens_it_for_a_whole_cool_down() -> None:
    """The cool-down runs from the failed probe, and all places for probes are free after it."""
    breaker = _opened(100.0, probes=1)
    assert breaker.may_probe(130.0)
    breaker.probe_started()
    breaker.failed(140.0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.may_probe(169.9)
    assert breaker.may_probe(170.0)


def test_late_outcomes_of_earlier_calls_change_nothing_while_open() -> None:
    """A call from before neither closes an open breaker nor makes its cool-down longer."""
    breaker = _opened(100.0)
    breaker.succeeded(110.0)
    breaker.failed(120.0)
    assert breaker.state is BreakerState.OPEN
    assert breaker.retry_after(120.0) == 10.0


class AnyHistory(RuleBasedStateMachine):
    """Calls and probes that end in any order, at any time, beside what must stay true throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(failure_threshold=3, open_cooldown=30.0, half_open_probes=2)
        self.now = 0.0

    @rule(seconds=st.integers(0, 40))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def something_succeeds(self) -> None:
        before = self.breaker.state
        self.breaker.succeeded(self.now)
        assert (self.breaker.state is BreakerState.OPEN) == (before is BreakerState.OPEN)

    @rule()
    def something_fails(self) -> None:
        before = self.breaker.state
        self.breaker.failed(self.now)
        assert self.breaker.state is not BreakerState.HALF_OPEN
        if before is BreakerState.HALF_OPEN:
            assert self.breaker.retry_after(self.now) == 30.0

    @rule()
    def a_probe_starts_if_it_may(self) -> None:
        if self.breaker.may_probe(self.now):
            self.breaker.probe_started()

    @rule()
    def a_probe_is_cancelled(self) -> None:
        self.breaker.probe_abandoned()

    @invariant()
    def it_refuses_exactly_unless_closed(self) -> None:
        assert self.breaker.allows_calls() == (self.breaker.state is BreakerState.CLOSED)

    @invariant()
    def closed_means_fewer_failures_than_the_threshold(self) -> None:
        assert self.breaker.state is not BreakerState.CLOSED or self.breaker.failures < 3

    @invariant()
    def waiting_is_always_bounded(self) -> None:
        assert 1.0 <= self.breaker.retry_after(self.now) <= 30.0

    def teardown(self) -> None:
        """From wherever it got to, one cool-down and one good probe heal it."""
        self.now += 30.0
        for _ in range(2):
            self.breaker.probe_abandoned()
        assert self.breaker.may_probe(self.now)
        self.breaker.probe_started()
        self.breaker.succeeded(self.now)
        assert self.breaker.allows_calls()


TestAnyHistory = AnyHistory.TestCase


def test_upstream_that_was_never_there_is_asked_again_soon() -> None:
    """Until its first success it is probably starting; afterwards the long cool-down holds."""
    breaker = Breaker(failure_threshold=1, open_cooldown=30.0, half_open_probes=1, start_cooldown=1.0)
    breaker.failed(0.0)
    assert breaker.retry_after(0.0) == 1.0 and breaker.may_probe(1.0)
    breaker.probe_started()
    breaker.succeeded(1.0)
    breaker.failed(2.0)
    assert breaker.retry_after(2.0) == 30.0 and not breaker.may_probe(3.0)


def test_upstream_where_nothing_listens_is_asked_again_soon() -> None:
    """A server that hangs is spared for the long cool-down, also where it was gone before."""
    breaker = Breaker(failure_threshold=1, open_cooldown=30.0, half_open_probes=1, unreachable_cooldown=5.0)
    breaker.failed(0.0, unreachable=True)
    assert breaker.retry_after(0.0) == 5.0 and not breaker.may_probe(4.0) and breaker.may_probe(5.0)
    breaker.probe_started()
    breaker.failed(6.0)
    assert breaker.retry_after(6.0) == 30.0 and not breaker.may_probe(35.0) and breaker.may_probe(36.0)


# --- the pauses between starts that fail -----------------------------------------------------------------------


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
