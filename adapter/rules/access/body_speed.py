"""The least speed of a body. Pure: the caller measures the time."""

from __future__ import annotations

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
