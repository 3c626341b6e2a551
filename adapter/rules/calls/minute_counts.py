"""Exchanges and failures by the minute in which they ended, for the last hour. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MINUTES = 60
"""Minutes that are kept, the running one among them."""


class MinuteCount(NamedTuple):
    """The exchanges that ended in one minute: calls of tools, all others, and those of both that failed.

    ``minute`` is Unix time in whole minutes.
    """

    minute: int
    calls: int
    others: int
    failed: int

    def plus(self, more: MinuteCount) -> MinuteCount:
        """The sum of two counts of one minute."""
        return MinuteCount(
            self.minute, self.calls + more.calls, self.others + more.others, self.failed + more.failed
        )


class MinuteCounts:
    """Counts exchanges from ``begun`` (Unix seconds) on; what is older than an hour is forgotten."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self._kept: dict[int, list[int]] = {}

    def __repr__(self) -> str:
        return f"<MinuteCounts of {len(self._kept)} minutes>"

    def count(self, at: float, *, is_call: bool, failed: bool) -> None:
        """Count an exchange that ended ``at`` (Unix seconds)."""
        minute = int(at // 60)
        counts = self._kept.get(minute)
        if counts is None:
            counts = self._kept[minute] = [0, 0, 0]
            while len(self._kept) > MINUTES:
                del self._kept[min(self._kept)]
        counts[0 if is_call else 1] += 1
        if failed:
            counts[2] += 1

    def last(self, now: float) -> list[MinuteCount]:
        """The minutes of the last hour in which anything ended, the oldest first."""
        return [
            MinuteCount(minute, *self._kept[minute]) for minute in sorted(self._kept) if _is_kept(minute, now)
        ]


def hour(counts: Iterable[MinuteCount], now: float) -> list[MinuteCount]:
    """The sums of these counts for each minute of the last hour, the oldest first; other minutes are left out."""
    last = int(now // 60)
    sums = {minute: MinuteCount(minute, 0, 0, 0) for minute in range(last - MINUTES + 1, last + 1)}
    for each in counts:
        if (before := sums.get(each.minute)) is not None:
            sums[each.minute] = before.plus(each)
    return list(sums.values())


def decoded(members: object, most: int = MINUTES) -> list[MinuteCount]:
    """Read counts that another process wrote as lists of four numbers. Raises ValueError for anything else."""
    if not isinstance(members, list) or len(members) > most:
        raise ValueError("not counts of an hour")
    return [_decoded(member) for member in members]


def _decoded(member: object) -> MinuteCount:
    if not isinstance(member, list) or len(member) != len(MinuteCount._fields):
        raise ValueError("not a count of a minute")
    if not all(type(number) is int and number >= 0 for number in member):
        raise ValueError("a count of a minute has a member that is no count")
    return MinuteCount(*member)


def _is_kept(minute: int, now: float) -> bool:
    return 0 <= int(now // 60) - minute < MINUTES
