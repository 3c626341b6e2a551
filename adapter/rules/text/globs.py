"""Patterns of dotted names: ``*`` is one segment, ``**`` any number of them, ``get-*`` a segment that begins so. Pure.

Matching is bounded: a match that takes more than a fixed number of steps is none, whoever wrote pattern and name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MOST_STEPS = 1024
_LONGEST = 256


class GlobInvalid(ValueError):
    """A text that is no pattern."""


class _TooLong(Exception):
    """The steps of one match are used up."""


@dataclass(slots=True)
class _Steps:
    left: int = MOST_STEPS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooLong


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern for whole names."""

    pattern: str
    segments: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        segments = tuple(self.pattern.split("."))
        if not all(segments) or len(self.pattern) > _LONGEST:
            raise GlobInvalid(
                f"A pattern must be names with dots between them, with at most {_LONGEST} characters."
            )
        if any("**" in segment and segment != "**" for segment in segments):
            raise GlobInvalid(f"In a pattern, ** must be alone between dots; not {self.pattern!r}.")
        object.__setattr__(self, "segments", segments)

    def __str__(self) -> str:
        return self.pattern

    def matches(self, name: str) -> bool:
        """Tell whether the pattern matches this name, as far as that can be told in MOST_STEPS."""
        if name == self.pattern:
            return True
        steps = _Steps()
        return _bounded(lambda: _matches(self.segments, name.split("."), "**", _segment(steps), steps))

    def covers(self, other: Glob) -> bool:
        """Tell whether this pattern surely matches every name that ``other`` matches."""
        steps = _Steps()

        def covered(mine: str, its: str) -> bool:
            if its == "**":
                return False
            if mine == its or mine == "*":
                return True
            return "*" not in its and _segment(steps)(mine, its)

        return _bounded(lambda: _matches(self.segments, other.segments, "**", covered, steps))


def _bounded(match: Callable[[], bool]) -> bool:
    try:
        return match()
    except _TooLong:
        return False


def _segment(steps: _Steps) -> Callable[[str, str], bool]:
    def fits(pattern: str, segment: str) -> bool:
        if pattern == "*" or "*" not in pattern:
            return pattern in ("*", segment)
        return _matches(pattern, segment, "*", str.__eq__, steps)

    return fits


def _matches(
    pattern: Sequence[str],
    subject: Sequence[str],
    any_number: str,
    fits: Callable[[str, str], bool],
    steps: _Steps,
) -> bool:
    """Tell whether the pattern's parts fit the subject's one by one; ``any_number`` fits any number of them.

    Only the last ``any_number`` is tried again with more parts: it can take all that an earlier one could take.
    """
    at = part = 0
    retry_at = retry_part = -1
    while at < len(subject):
        steps.take()
        if part < len(pattern) and pattern[part] == any_number:
            retry_at, retry_part = at, part + 1
            part += 1
        elif part < len(pattern) and fits(pattern[part], subject[at]):
            at += 1
            part += 1
        elif retry_part >= 0:
            retry_at += 1
            at, part = retry_at, retry_part
        else:
            return False
    return all(left == any_number for left in pattern[part:])
