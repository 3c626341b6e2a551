"""Checks of redaction paths against the declared shape of the data: a path that leads nowhere is a mistake. Pure.

A name is unknown when no place that the path can have reached declares it. A place of the type ``any``, or one that
is open to other members, has every name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol

from adapter.rules.access.redacted_values import EVERY, Segment
from adapter.rules.presenters.shapes import JsonDeclaration

_DEEPEST = 32
"""Lists within lists: a schema may refer to itself."""

ANYTHING = None
"""The place that holds whatever a path asks for."""


class Places(Protocol):
    """A notation of declared places. Places are the notation's own, and ``ANYTHING``."""

    def members(self, place: Any) -> Mapping[str, Any] | None:
        """The places of the members by name; None where there may be any."""

    def items(self, place: Any) -> Sequence[Any]:
        """The places of a list's items, none of what is no list."""


class ShortNotation:
    """Places of ``schema``: a mapping of names, a list of one, or the name of a type."""

    def members(self, place: Any) -> Mapping[str, Any] | None:
        """See Places."""
        if isinstance(place, Mapping):
            return {str(name).removesuffix("?"): declared for name, declared in place.items()}
        return None if str(place).removesuffix("?") == "any" else {}

    def items(self, place: Any) -> Sequence[Any]:
        """See Places."""
        if isinstance(place, list):
            return place
        text = place.replace(" ", "").removesuffix("?") if isinstance(place, str) else ""
        return [text[5:-1]] if text.startswith("list[") else []


class JsonNotation:
    """Places of ``json_schema``: the schemas that apply there."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._declaration = JsonDeclaration(schema)

    def members(self, place: Any) -> Mapping[str, Any] | None:
        """See Places."""
        within = self._declaration.within(place)
        return None if within.free and not within.items else within.members

    def items(self, place: Any) -> Sequence[Any]:
        """See Places."""
        items = self._declaration.within(place).items
        return [items] if items else []


def unknown_name(path: Sequence[Segment], root: Any, notation: Places) -> str | None:
    """Return a sentence on the first name of the path that is not declared, with the most similar declared name; None
    for a path that leads somewhere. ``root`` is the place of one item of the data.
    """
    places: list[Any] = [root]
    for number, segment in enumerate(path):
        known: set[str] = set()
        within = list(_within(places, segment, notation, known))
        if ANYTHING in within:
            return None
        if number == 0 and not isinstance(segment, str):
            # The data may be a list, of which the root is an item.
            within.append(root)
        places = within
        if not places:
            likely = get_close_matches(str(segment), sorted(known), n=1, cutoff=0)
            nearest = f"; the nearest is {likely[0]}" if likely else ""
            return f"{_spelled(segment)} is not declared in the schema{nearest}"
    return None


def _within(
    places: Iterable[Any], segment: Segment, notation: Places, known: set[str], depth: int = 0
) -> Iterator[Any]:
    """Yield the places to which the segment leads from these places; add the names that exist there to ``known``."""
    for place in places if depth <= _DEEPEST else ():
        items, members = notation.items(place), notation.members(place)
        if not items and members is None:
            yield ANYTHING
            return
        known.update(members or ())
        if segment is EVERY:
            yield from (*items, *(members or {}).values())
        elif isinstance(segment, int):
            yield from items
        elif segment in (members or {}):
            yield (members or {})[str(segment)]
        else:
            # A name leads through the items of a list that is in its way.
            yield from _within(items, segment, notation, known, depth + 1)


def _spelled(segment: Segment) -> str:
    return "*" if segment is EVERY else f"[{segment}]" if isinstance(segment, int) else str(segment)
