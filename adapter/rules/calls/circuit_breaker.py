"""The circuit breaker of one upstream: a table of states, and the counts that choose the event.

Closed, calls go through. After too many consecutive failures it is open: calls are refused until a cool-down
has passed, then a few probes may try. The first probe that succeeds closes it, the first that fails opens it
again. Starts of a process that fail have pauses of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


_CLOSED = BreakerState.CLOSED
"""Under a name of its own: in Python 3.11, to read a member of an Enum takes longer than a function call."""


class BreakerEvent(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    FAILED_TOO_OFTEN = "failed_too_often"
    COOLED_DOWN = "cooled_down"


TRANSITIONS: dict[tuple[BreakerState, BreakerEvent], BreakerState] = {
    (BreakerState.CLOSED, BreakerEvent.SUCCEEDED): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerEvent.FAILED): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerEvent.FAILED_TOO_OFTEN): BreakerState.OPEN,
    # Whatever ends while it is open began before it opened: old news, good or bad.
    (BreakerState.OPEN, BreakerEvent.SUCCEEDED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.FAILED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.COOLED_DOWN): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.SUCCEEDED): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, BreakerEvent.FAILED): BreakerState.OPEN,
}


def advance(state: BreakerState, event: BreakerEvent) -> BreakerState:
    """The only way a breaker changes state. A pair not listed raises KeyError."""
    return TRANSITIONS[state, event]


@dataclass(eq=False)
class Breaker:
    """Counts the failures of one upstream. ``now`` is any clock that never goes back, in seconds.

    ``start_cooldown`` holds until the first success: an upstream that was never there is probably starting.
    ``unreachable_cooldown`` holds after a failure to connect. Neither is longer than ``open_cooldown``.
    """

    failure_threshold: int = field(kw_only=True)
    open_cooldown: float = field(kw_only=True)
    half_open_probes: int = field(default=2, kw_only=True)
    start_cooldown: float | None = field(default=None, kw_only=True)
    unreachable_cooldown: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._cooldown = self._pause = self._at_most(self.start_cooldown, self.open_cooldown)
        self._probes_under_way = 0
        self._opened = 0.0
        self._state = BreakerState.CLOSED
        self._failures = 0

    def __repr__(self) -> str:
        return f"<Breaker {self._state.value}: {self._failures} failures, {self._probes_under_way} probes>"

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def failures(self) -> int:
        """Failures since the last success that counted."""
        return self._failures

    def allows_calls(self) -> bool:
        """Tell whether a client's call may go to the upstream; only probes test if it is back."""
        return self._state is _CLOSED

    def retry_after(self, now: float) -> float:
        """Return the seconds until it is worth asking again, at least 1."""
        if self._state is BreakerState.OPEN:
            return max(1.0, self._pause - (now - self._opened))
        return 1.0

    def may_probe(self, now: float) -> bool:
        """Tell whether a probe may start; asking an open breaker after its cool-down makes it half-open."""
        if self._state is BreakerState.OPEN and now - self._opened >= self._pause:
            self._enter(BreakerEvent.COOLED_DOWN, now)
        if self._state is BreakerState.HALF_OPEN:
            return self._probes_under_way < self.half_open_probes
        return self._state is BreakerState.CLOSED

    def probe_started(self) -> None:
        """Call before each probe; it ends with ``succeeded``, ``failed`` or ``probe_abandoned``."""
        if self._state is BreakerState.HALF_OPEN:
            self._probes_under_way += 1

    def probe_abandoned(self) -> None:
        """A probe was cancelled, so it tells nothing of the upstream."""
        self._probes_under_way = max(0, self._probes_under_way - 1)

    def succeeded(self, now: float) -> None:
        self._enter(BreakerEvent.SUCCEEDED, now)
        if self._state is BreakerState.CLOSED:
            self._failures = 0
            self._cooldown = self.open_cooldown

    def failed(self, now: float, *, unreachable: bool = False) -> None:
        self._failures += 1
        if self._state is not BreakerState.OPEN:
            self._pause = self._at_most(self.unreachable_cooldown if unreachable else None, self._cooldown)
        too_often = self._state is BreakerState.CLOSED and self._failures >= self.failure_threshold
        self._enter(BreakerEvent.FAILED_TOO_OFTEN if too_often else BreakerEvent.FAILED, now)

    @staticmethod
    def _at_most(seconds: float | None, longest: float) -> float:
        return longest if seconds is None else min(seconds, longest)

    def _enter(self, event: BreakerEvent, now: float) -> None:
        before, self._state = self._state, advance(self._state, event)
        if self._state is not before:
            self._probes_under_way = 0
            if self._state is BreakerState.OPEN:
                self._opened = now


# --- pauses between starts of a process that fails to start ----------------------------------------------------


_DOUBLINGS = 32


@dataclass(slots=True)
class RestartBackoff:
    """``first`` and ``longest`` are pauses in seconds; times are seconds of any one clock.

    ``failures`` counts failed starts in a row, ``reason`` is why the last one failed.
    """

    first: float
    longest: float
    failures: int = field(default=0, init=False)
    reason: str = field(default="", init=False)
    _until: float = field(default=0.0, init=False)

    def failed(self, now: float, reason: str) -> None:
        """Note a start that failed."""
        self.failures += 1
        self.reason = reason
        pause = self.first * 2.0 ** min(self.failures - 1, _DOUBLINGS)
        self._until = now + min(self.longest, pause)

    def succeeded(self) -> None:
        """Note a start that succeeded: the next failure is the first again."""
        self.failures = 0

    def wait(self, now: float) -> float:
        """Seconds until the next start is allowed; 0 if it is now."""
        return max(0.0, self._until - now) if self.failures else 0.0
