"""The limit for the calls of a caller: at most so many in any window of so many seconds.

Pure: the time is given by the code that asks. A call that is refused does not count, so a caller that waits as
long as it is told gets through.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Floor:
    """The least speed of a body: ``rate`` bytes per second in each ``window`` seconds of waiting for it.

    The first ``grace`` seconds do not count. A rate of 0 allows any speed.
    """

    rate: float = 1024.0
    window: float = 10.0
    grace: float = 10.0


class Pace:
    """The speed of one body, measured against a floor. Only seconds spent waiting for its sender count."""

    __slots__ = ("_arrived", "_floor", "_waited")

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._waited = -floor.grace
        self._arrived = 0

    def is_too_slow(self, waited: float, arrived: int) -> bool:
        """Return True if the window that ends now had too few bytes.

        ``waited`` are the seconds of one more wait, ``arrived`` the bytes of the body that have come altogether.
        """
        self._waited += waited
        if self._waited <= 0:
            self._arrived = arrived
            return False
        if self._waited < self._floor.window:
            return False
        too_slow = arrived - self._arrived < self._floor.rate * self._waited
        self._waited, self._arrived = 0.0, arrived
        return too_slow


_SWEPT_PER_CALL = 2


class SlidingWindow:
    """Counts the calls of each key; ``window`` is in seconds of the clock that ``admit`` is given.

    Of a key nothing is kept longer than its last call counts, and never more than ``most`` moments.
    """

    def __init__(self, most: int, window: float) -> None:
        """Raises ValueError unless both are positive."""
        if most < 1 or window <= 0:
            raise ValueError("A rate is at least one call in a window longer than nothing.")
        self.most = most
        self.window = window
        # In the order of each key's last call, so that those that no longer count stand first.
        self._calls: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<SlidingWindow of {self.most} in {self.window:g} s: {len(self._calls)} keys>"

    def __len__(self) -> int:
        return len(self._calls)

    def admit(self, key: Hashable, now: float) -> float | None:
        """None if a call may go on, and it counts; else the seconds after which one may."""
        self._sweep(now)
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = deque(maxlen=self.most)
        while calls and calls[0] + self.window <= now:
            calls.popleft()
        if len(calls) == self.most:
            return calls[0] + self.window - now
        calls.append(now)
        self._calls.move_to_end(key)
        return None

    def counts(self, now: float) -> bool:
        """Tell whether any call still counts."""
        latest = next(reversed(self._calls.values()), None)
        return latest is not None and latest[-1] + self.window > now

    def _sweep(self, now: float) -> None:
        """Forgets a few keys that no longer count; more than one a call, so that none pile up."""
        for _ in range(_SWEPT_PER_CALL):
            key = next(iter(self._calls), None)
            if key is None or self._calls[key][-1] + self.window > now:
                return
            del self._calls[key]
