"""Values that nobody may read: the paths that lead to them, and what stands in their place. Pure.

A path is written ``ssn``, ``client.ssn``, ``*.ssn``, ``orders[*].card``, ``orders[0].card`` or ``["odd key"].x``. In
doubt more is censored, not less: a name leads through the items of a list that is in its way, ``*`` through lists and
objects alike, and a path begins at the data and, if that is a list, at each of its items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

CENSORED = "[REDACTED]"

_SEGMENT = re.compile(
    r"""(?:^|\.)(?P<name>[^.\[\]"'*\s]+) | (?:^|\.)(?P<star>\*)
      | \[(?:(?P<index>\d+)|(?P<every>\*)|(?P<quote>["'])(?P<quoted>(?:(?!(?P=quote)).)+)(?P=quote))\]""",
    re.VERBOSE,
)


class _Every:
    """The segment ``*``."""


EVERY = _Every()
Segment = str | int | _Every
"""One step of a path: a name, the index of an item, or every member and item."""


class PathInvalid(ValueError):
    """A text that is no path."""


class Censored(str):
    """The text in the place of a value. It passes as a value of any type, since it was one before."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Censor:
    """Called with data, gives it without the values at its paths; what was given stays as it is.

    ``stand_in`` is what stands there, or makes it of the value that was there.
    """

    paths: tuple[tuple[Segment, ...], ...]
    stand_in: str | Callable[[Any], Any] = CENSORED

    def __call__(self, data: Any) -> Any:
        for path in self.paths:
            data = self._each(data, path) if isinstance(data, list) else self._at(data, path)
        return data

    def _each(self, data: list[Any], path: tuple[Segment, ...]) -> Any:
        """A path of a list is one of its items, and may be one of the list itself."""
        seen = self._at(data, path)
        return [self._at(item, path) for item in seen] if isinstance(seen, list) else seen

    def _at(self, value: Any, path: tuple[Segment, ...]) -> Any:
        if isinstance(value, Censored):
            return value
        if not path:
            return self._hidden(value)
        first, rest = path[0], path[1:]
        if isinstance(value, dict):
            if isinstance(first, _Every):
                return {key: self._at(member, rest) for key, member in value.items()}
            name = str(first)
            return {**value, name: self._at(value[name], rest)} if name in value else value
        if isinstance(value, list):
            if isinstance(first, _Every):
                return [self._at(item, rest) for item in value]
            if isinstance(first, int):
                return [self._at(item, rest) if at == first else item for at, item in enumerate(value)]
            return [self._at(item, path) for item in value]
        return value

    def _hidden(self, value: Any) -> Censored:
        if isinstance(self.stand_in, str):
            return Censored(self.stand_in)
        try:
            return Censored(self.stand_in(value))
        except Exception:
            # Whatever is wrong with the function, the value is not to be seen.
            return Censored(CENSORED)


def censor_of(paths: Iterable[str], stand_in: str | Callable[[Any], Any] = CENSORED) -> Censor:
    """The censor of these paths. Raises PathInvalid."""
    return Censor(tuple(map(segments, paths)), stand_in)


def segments(path: str) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    at = 0
    while found := _SEGMENT.match(path, at):
        at = found.end()
        if found["star"] or found["every"]:
            segments.append(EVERY)
        elif found["index"]:
            segments.append(int(found["index"]))
        else:
            segments.append(found["name"] or found["quoted"])
    if at != len(path) or not segments or path.startswith("."):
        raise PathInvalid(f"A path must have a form such as a.b, *.b, a[*].b or a[0].b; not {path!r}.")
    return tuple(segments)
