"""Arguments of a tool call: where in the message the values stand, and the edits that give new ones. Pure.

An argument is named by its dotted path. A list on the way or at the end stands for its items; ``[]`` behind a name
tells the reader so, and is needed only for lists in lists: ``paths``, ``files[].path``, ``grid[][]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from adapter.wire import spans

Value = str | bytes
"""A text, or the JSON of anything else as it came."""

_ARGUMENTS = ("params", "arguments")


class Step(NamedTuple):
    """One part of a dotted path: a member's name, and through how many levels of lists its value is followed."""

    name: str
    levels: int


def steps(path: str) -> tuple[Step, ...]:
    """The parts of a dotted path, in their order."""
    return tuple(map(_step, path.split(".")))


def values(message: bytes, path: str) -> list[tuple[spans.Path, Value]]:
    """What a tool call says for an argument: where each value stands in the message, for edits, and what it is.

    An argument that is absent or null has no value, nor has a null in a list. What stands there and is no text
    is a value all the same, so that whoever expects a text can say that there is none.
    """
    start = spans.find(message, _ARGUMENTS)
    if start is None:
        return []
    places = [_Place(_ARGUMENTS, *start)]
    for step in steps(path):
        places = [inner for place in places for inner in _inside(message, place, step)]
    found = [(place.path, message[place.start : place.end]) for place in places]
    return [(path, _value(text)) for path, text in found if text != b"null"]


def replacements(texts: Iterable[tuple[spans.Path, str]]) -> list[spans.Edit]:
    """The edits that put texts in place of what ``values`` found at these paths."""
    return [spans.Replace(path, _quoted(text)) for path, text in texts]


def setting(message: bytes, path: str, text: str) -> spans.Edit | None:
    """The edit that gives an argument this text, whether or not the call has it.

    None if the call's arguments are no object where the path leads through them; a null there counts as absent.
    """
    names = (*_ARGUMENTS, *(step.name for step in steps(path)))
    for depth in range(len(names)):
        span = spans.find(message, names[:depth])
        if span is None:
            break
        here = message[span[0] : span[1]]
        if here == b"null":
            return spans.Replace(names[:depth], _nested(names[depth:], text))
        if not here.startswith(b"{"):
            return None
    return spans.Insert(names, _quoted(text))


class _Place(NamedTuple):
    path: tuple[str | int, ...]
    start: int
    end: int


def _step(part: str) -> Step:
    name = part
    while name.endswith("[]"):
        name = name[:-2]
    return Step(name, max(1, (len(part) - len(name)) // 2))


def _inside(message: bytes, place: _Place, step: Step) -> Iterator[_Place]:
    """Where the member is that a step names, or the items for which it stands."""
    if not message.startswith(b"{", place.start):
        return
    found = None
    for member in spans.members(message, place.start):
        if member.key == step.name:
            found = member
    if found is not None:
        member_place = _Place((*place.path, step.name), found.value_start, found.value_end)
        yield from _items(message, member_place, step.levels)


def _items(message: bytes, place: _Place, levels: int) -> Iterator[_Place]:
    if levels == 0 or not message.startswith(b"[", place.start):
        yield place
        return
    for index, (start, end) in enumerate(spans.items(message, place.start)):
        yield from _items(message, _Place((*place.path, index), start, end), levels - 1)


def _value(text: bytes) -> Value:
    if not text.startswith(b'"'):
        return text
    value: str = json.loads(text)
    return value


def _nested(names: tuple[str, ...], text: str) -> bytes:
    value = _quoted(text)
    for name in reversed(names):
        value = b"{" + _quoted(name) + b":" + value + b"}"
    return value


def _quoted(text: str) -> bytes:
    # Escaped to ASCII, for a file's name may hold a lone surrogate, which UTF-8 cannot.
    return json.dumps(text).encode("ascii")
