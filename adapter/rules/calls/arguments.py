"""Arguments of a tool call: where in the message the values stand, and the edits that give new ones. Pure.

An argument is named by its dotted path. A list on the way or at the end stands for its items; ``[]`` behind a name
tells the reader so, and is needed only for lists in lists: ``paths``, ``files[].path``, ``grid[][]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from adapter.errors import HeaderMismatch
from adapter.wire import spans
from adapter.wire.ambiguity import leads_elsewhere
from adapter.wire.envelope import parse, value_at
from adapter.wire.eras import decode_mirror
from adapter.wire.scan import end_of_value, skip_space

Value = str | bytes
"""A text, or the JSON of anything else as it came."""

_ARGUMENTS = ("params", "arguments")


class PathStep(NamedTuple):
    """One part of a dotted path: a member's name, and through how many levels of lists its value is followed."""

    name: str
    levels: int


def steps(path: str) -> tuple[PathStep, ...]:
    """The parts of a dotted path, in their order."""
    return tuple(map(_step, path.split(".")))


def ambiguous(message: bytes, path: str) -> bool:
    """Tell whether a reader other than ``values`` may find more of an argument in a tool call: see
    ``leads_elsewhere``.
    """
    return leads_elsewhere(message, (*((name, 0) for name in _ARGUMENTS), *steps(path)))


class ArgumentValue(NamedTuple):
    """A value of an argument: its path in the message, and where its bytes stand there."""

    path: tuple[str | int, ...]
    value: Value
    start: int
    end: int


def values(message: bytes, path: str) -> list[ArgumentValue]:
    """The values of an argument in a tool call, in the order of the message.

    An argument that is absent or null has no value; a null in a list has none either. What stands there and is
    not a text is a value all the same, so that code that expects a text can say that there is none.
    """
    sole = _sole(message, path)
    if sole is not None:
        return [sole]
    arguments = spans.find(message, _ARGUMENTS)
    if arguments is None:
        return []
    places = [_Place(_ARGUMENTS, *arguments)]
    for step in steps(path):
        places = [inner for place in places for inner in _inside(message, place, step)]
    found = [(place, message[place.start : place.end]) for place in places]
    return [
        ArgumentValue(place.path, _value(text), place.start, place.end)
        for place, text in found
        if text != b"null"
    ]


def replaced(message: bytes, texts: Iterable[tuple[ArgumentValue, str]]) -> bytes:
    """Return the message with texts in place of the values that ``values`` found, given in the same order."""
    pieces: list[bytes] = []
    at = 0
    for value, text in texts:
        pieces += (message[at : value.start], _quoted(text))
        at = value.end
    return b"".join((*pieces, message[at:]))


class ArgumentSlot(NamedTuple):
    """The place of an argument in a tool call, or the place where it is to be added.

    ``value`` is the first one that ``values`` finds, None if it finds none.
    """

    value: Value | None
    start: int
    end: int
    before: bytes
    after: bytes

    def filled(self, message: bytes, text: str) -> bytes:
        """Return the message with this text for the argument; all other bytes stay."""
        return b"".join(
            (message[: self.start], self.before, _quoted(text), self.after, message[self.end :]),
        )


def slot(message: bytes, path: str) -> ArgumentSlot | None:
    """Find the place to give an argument a text, whether or not the call has the argument.

    A null on the way counts as absent. None if the call's arguments are no object where the path leads
    through them.
    """
    sole = _sole(message, path)
    if sole is not None:
        return ArgumentSlot(sole.value, sole.start, sole.end, b"", b"")
    names = (*_ARGUMENTS, *(step.name for step in steps(path)))
    start = skip_space(message, 0)
    for depth, name in enumerate(names):
        last = found = None
        for last in spans.members(message, start):
            if last.key == name:
                found = last
        if found is None:
            at = start + 1 if last is None else last.value_end
            before = b"{".join(_quoted(missing) + b":" for missing in names[depth:])
            return ArgumentSlot(
                None, at, at, (b"," if last else b"") + before, b"}" * (len(names) - depth - 1)
            )
        start, end = found.value_start, found.value_end
        if message.startswith(b"null", start):
            before = b"".join(b"{" + _quoted(missing) + b":" for missing in names[depth + 1 :])
            return ArgumentSlot(None, start, end, before, b"}" * (len(names) - depth - 1))
        if depth + 1 < len(names) and not message.startswith(b"{", start):
            return None
    first = next((value.value for value in values(message, path)), None)
    return ArgumentSlot(first, start, end, b"", b"")


class _Place(NamedTuple):
    path: tuple[str | int, ...]
    start: int
    end: int


def _step(part: str) -> PathStep:
    name = part
    while name.endswith("[]"):
        name = name[:-2]
    return PathStep(name, max(1, (len(part) - len(name)) // 2))


def _inside(message: bytes, place: _Place, step: PathStep) -> Iterator[_Place]:
    """Yield the place of the member that a step names, or the places of the items for which it stands."""
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


def _quoted(text: str) -> bytes:
    # Escaped to ASCII, for a file's name may hold a lone surrogate, which UTF-8 cannot.
    return json.dumps(text).encode("ascii")


# --- at a glance ----------------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_LARGE = 32 * 1024


def _sole(message: bytes, path: str) -> ArgumentValue | None:
    r"""The argument's one text, where that is sure without a walk: a decoded look and a count take a tenth of it.

    A name that the decoded arguments have, and that stands in quotes but once in all the message, stands there
    as their key: within a text a quote is escaped, and a key spelled otherwise needs a ``\u00``.
    """
    if len(message) > _LARGE or not _WORD.fullmatch(path) or b"\\u00" in message:
        return None
    arguments = parse(message)
    for name in _ARGUMENTS:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    value = arguments.get(path) if isinstance(arguments, dict) else None
    key = b'"%b"' % path.encode()
    if not isinstance(value, str) or message.count(key) != 1:
        return None
    start = skip_space(message, skip_space(message, message.index(key) + len(key)) + 1)
    return ArgumentValue((*_ARGUMENTS, path), value, start, end_of_value(message, start))


# --- headers that mirror arguments -------------------------------------------------------------------------


ANNOTATION = "x-mcp-header"

DEEPEST = 32
"""Objects within each other of which an argument may be mirrored; a path is written out for each."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""What the name of a header may be (RFC 9110 §5.1); an upstream's schema is data like any other."""

Headers = Mapping[tuple[str, ...], str]
"""The header of each argument that has one, by its path."""

NO_HEADERS: Headers = {}


def annotated(schema: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """The header of each property that has one. Only those reached through ``properties`` alone may be mirrored."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while todo:
        path, here = todo.pop()
        properties = here.get("properties") if isinstance(here, dict) else None
        if not isinstance(properties, dict) or len(path) == DEEPEST:
            continue
        for key, inner in properties.items():
            if not isinstance(inner, dict):
                continue
            todo.append(((*path, key), inner))
            name = inner.get(ANNOTATION)
            if isinstance(name, str) and _TOKEN.fullmatch(name):
                yield (*path, key), f"Mcp-Param-{name}"


def headers_of(definition: bytes, value: Mapping[str, Any]) -> Headers:
    """Return the headers of a tool's arguments. ``value`` is the decoded ``definition``."""
    # Few tools have any, and a backslash may hide the word.
    if b"x-mcp-header" not in definition and b"\\" not in definition:
        return NO_HEADERS
    return dict(annotated(value.get("inputSchema")))


_NUMBER = re.compile(r"-?[0-9]{1,40}((?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?)")


def check_parameters(mirrors: Headers, arguments: object, headers: Mapping[str, str]) -> None:
    """Raise HeaderMismatch unless each mirrored argument equals its header, or both are absent.

    ``headers`` go by their names in lower case. A value that no header can hold, such as a list, is left to the
    upstream.
    """
    for path, name in mirrors.items():
        header, value = headers.get(name.lower()), value_at(arguments, *path)
        if isinstance(value, list | dict) or (header is None and value is None):
            continue
        if header is None or value is None:
            raise HeaderMismatch(f"The {name} header and its argument must be sent together.")
        if not _says(decode_mirror(header, header=name), value):
            raise HeaderMismatch(f"The {name} header and its argument have different values.")


def _says(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # Not all integers are doubles, so those are compared as what they are.
        number = _NUMBER.fullmatch(text)
        return number is not None and (float(text) if number[1] else int(text)) == value
    return text == value
