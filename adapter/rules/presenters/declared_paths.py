"""Checks of redaction paths against the declared shape of the data: a path that leads nowhere is a mistake. Pure.

A name is unknown when no place that the path can have reached declares it. A place of the type ``any``, or one that
is open to other members, has every name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from adapter.rules.access.redacted_values import EVERY, Segment
from adapter.rules.presenters.shapes import JsonDeclaration

_DEEPEST = 32
"""Lists within lists: a schema may refer to itself."""

Place = Sequence[Any]
"""A place in the data: the schemas that apply there."""

ANYTHING: Place = ()
"""The place that holds whatever a path asks for."""


def as_json_schema(declared: Any) -> Mapping[str, Any]:
    """The JSON Schema with the members and items of what is declared in short notation; a scalar has neither."""
    if isinstance(declared, Mapping):
        members = {str(name).removesuffix("?"): as_json_schema(inner) for name, inner in declared.items()}
        return {"properties": members}
    if isinstance(declared, list):
        return {"items": as_json_schema(declared[0])} if declared else {}
    text = str(declared).replace(" ", "").removesuffix("?")
    if text.startswith("list["):
        return {"items": as_json_schema(text[5:-1])}
    return {} if text == "any" else {"properties": {}}


def unknown_name(path: Sequence[Segment], schema: Mapping[str, Any]) -> str | None:
    """Return a sentence on the first name of the path that is not declared, with the most similar declared name; None
    for a path that leads somewhere. ``schema`` is the JSON Schema of one item of the data.
    """
    declaration = JsonDeclaration(schema)
    root: Place = [schema]
    places: list[Place] = [root]
    for number, segment in enumerate(path):
        known: set[str] = set()
        within = list(_within(places, segment, declaration, known))
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
    places: Iterable[Place], segment: Segment, declaration: JsonDeclaration, known: set[str], depth: int = 0
) -> Iterator[Place]:
    """Yield the places to which the segment leads from these places; add the names that exist there to ``known``."""
    for place in places if depth <= _DEEPEST else ():
        members, items, free = declaration.within(place)
        if free and not items:
            yield ANYTHING
            return
        known.update(members)
        if segment is EVERY:
            yield from (*([items] if items else ()), *members.values())
        elif isinstance(segment, int):
            yield from [items] if items else ()
        elif segment in members:
            yield members[str(segment)]
        elif items:
            # A name leads through the items of a list that is in its way.
            yield from _within([items], segment, declaration, known, depth + 1)


def _spelled(segment: Segment) -> str:
    return "*" if segment is EVERY else f"[{segment}]" if isinstance(segment, int) else str(segment)
