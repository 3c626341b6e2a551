"""Lists of tools, resources, templates and prompts, reduced to what one caller may see. Pure.

What stays keeps its bytes. An entry in which another reader could find another name is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import orjson

from adapter.errors import BadJson
from adapter.rules.access.access_rules import OfferKind
from adapter.rules.tools.lists import MOST_ITEMS, PRIVATE, Entries, ListRefused, certain_outline
from adapter.wire.ambiguity import stands_twice
from adapter.wire.envelope import parse
from adapter.wire.names import Names
from adapter.wire.outline import Outline
from adapter.wire.piecewise import Piecewise, one_piece

LARGEST_ENTRY = 1 << 20
"""Bytes of an entry that is looked into; a larger one is left out."""

_EACH = 64


class ListShape(NamedTuple):
    """The method that lists one kind, the member of the result with the list, and the member with an entry's name."""

    method: str
    key: str
    name: str

    @property
    def of_result(self) -> Names:
        """The members of the result that must be there in one spelling only."""
        known = ("_meta", "resultType", "ttlMs", "cacheScope")
        return Names.of(judged=(self.key, "nextCursor"), known=known)


SHAPES = {
    OfferKind.TOOL: ListShape("tools/list", "tools", "name"),
    OfferKind.RESOURCE: ListShape("resources/list", "resources", "uri"),
    OfferKind.TEMPLATE: ListShape("resources/templates/list", "resourceTemplates", "uriTemplate"),
    OfferKind.PROMPT: ListShape("prompts/list", "prompts", "name"),
}

_OF_RESULT = {kind: shape.of_result for kind, shape in SHAPES.items()}
_OF_ENTRY = {kind: Names.of(judged=(shape.name,)) for kind, shape in SHAPES.items()}


def visible_list(
    response: bytes, kind: OfferKind, shows: Callable[[str], bool], *, modern: bool
) -> Piecewise[bytes]:
    """The response to a list with the entries whose names ``shows`` allows; the very object if all of them are.

    A modern one is marked as private in any case, because other callers may see other entries. Raises BadJson, and
    ListRefused for what can be read in two ways.
    """
    found = yield from _outline(response, kind)
    if found is None:
        return response
    entries = Entries(response, found, SHAPES[kind].key, b"")
    entries.edited = modern
    for place, span in enumerate(found.spans):
        raw = response[slice(*span)]
        name = yield from entry_name(raw, kind)
        if name is not None and shows(name):
            entries.keep(span, raw)
        else:
            entries.drop()
        if place % _EACH == 0:
            yield None
    return entries.written([PRIVATE] if modern else [])


def names_listed(response: bytes, kind: OfferKind) -> Piecewise[frozenset[str] | None]:
    """The names on one page of a list; None of what is no list. Raises BadJson, ListRefused."""
    found = yield from _outline(response, kind)
    if found is None:
        return None
    names: set[str] = set()
    for span in found.spans:
        name = yield from entry_name(response[slice(*span)], kind)
        if name is not None:
            names.add(name)
    return frozenset(names)


def _outline(response: bytes, kind: OfferKind) -> Piecewise[Outline | None]:
    key, names = SHAPES[kind].key, _OF_RESULT[kind]
    found, message = yield from certain_outline(response, key, names, MOST_ITEMS, "entries")
    if found is None or not isinstance(message, dict):
        raise ListRefused("is not a response")
    return None if found.list_at is None else found


def entry_name(raw: bytes, kind: OfferKind) -> Piecewise[str | None]:
    """The name that all readers find in an entry, None if there is none. Raises BadJson."""
    if len(raw) > LARGEST_ENTRY:
        return None
    return (yield from one_piece(partial(_certain_name, raw, kind), len(raw)))


def _certain_name(raw: bytes, kind: OfferKind) -> str | None:
    try:
        value = parse(raw)
    except BadJson:
        # Too deep, for one: of what nobody here can read nothing is shown.
        return None
    name = value.get(SHAPES[kind].name) if isinstance(value, dict) else None
    if not isinstance(name, str) or _OF_ENTRY[kind].second_spelling(value) is not None:
        return None
    return name if _is_written_once(raw, value) or not stands_twice(raw, _OF_ENTRY[kind]) else None


def _is_written_once(raw: bytes, value: object) -> bool:
    """True only if no key stands twice: what is written again with the same bytes has each key once."""
    try:
        return orjson.dumps(value) == raw
    except orjson.JSONEncodeError:
        return False
