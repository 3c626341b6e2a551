"""The prose in a tool's definition that a model reads: titles and descriptions, with their places. Pure.

One walk over the bytes finds it at any depth, also if a member appears twice, so that nothing a client may read is
missed. Bytes that are not replaced stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.wire.envelope import dump

# A key or text (1) and, where it is the key of a member, the text (2) or the container (3) behind it; or a bracket (4).
# In JSON every string ends; that its end is optional keeps what is none from being read again at each quote.
_STRING = rb'"(?:[^"\\]++|\\.)*+"?+'
_TOKEN = re.compile(
    rb"(" + _STRING + rb")(?:\s*+:\s*+(?:(" + _STRING + rb")|([\[{]))?)?|([\[\]{}])", re.DOTALL
)
_MEMBER_TEXT, _MEMBER_CONTAINER, _BRACKET = 2, 3, 4

# What the container is in which the walk stands.
_TOOL, _ANNOTATIONS, _SCHEMA, _NAMED, _DATA = range(5)
_OF_TOOL = {b'"annotations"': _ANNOTATIONS, b'"inputSchema"': _SCHEMA, b'"outputSchema"': _SCHEMA}
# Keywords of JSON Schema whose value is no schema: data, or schemas under names that are no keywords.
_OF_SCHEMA = {
    **dict.fromkeys((b'"default"', b'"const"', b'"enum"', b'"examples"', b'"example"'), _DATA),
    **dict.fromkeys(
        (b'"properties"', b'"patternProperties"', b'"dependentSchemas"', b'"dependencies"'), _NAMED
    ),
    **dict.fromkeys((b'"$defs"', b'"definitions"'), _NAMED),
}
_TITLE, _DESCRIPTION = b'"title"', b'"description"'


class Prose(NamedTuple):
    """A title or description: ``where`` is the member of the tool it is or stands in, the rest is positions.

    The member begins at ``member`` with its key's quote; its value, a JSON string, is at ``start`` to ``end``.
    """

    where: str
    is_title: bool
    member: int
    start: int
    end: int

    @property
    def in_schema(self) -> bool:
        return self.where.endswith("Schema")

    def text(self, definition: bytes) -> str:
        """Return the text of this prose. A lone surrogate in it stays one."""
        quoted = definition[self.start : self.end]
        if b"\\" not in quoted:
            return quoted[1:-1].decode("utf-8")
        text: str = json.loads(quoted)
        return text


def prose(definition: bytes) -> Iterator[Prose]:
    """Every title and description of a tool, its annotations and its schemas, in their order.

    ``definition`` is valid JSON; if it is no object there are none. Within a schema, members of whatever is no
    known keyword count as well, but what stands in a ``default``, ``const``, ``enum`` or ``examples`` is data.
    """
    within: list[int] = []
    where = b""
    for token in _TOKEN.finditer(definition):
        kind = token.lastindex
        if kind == _BRACKET:
            bracket = token[4]
            if bracket in b"]}":
                within.pop()
            elif within:
                # An item of a list: names have no lists, so whatever is in one is read as a schema.
                within.append(_SCHEMA if within[-1] == _NAMED else within[-1])
            elif bracket == b"{":
                within.append(_TOOL)
            else:
                return
        elif kind == _MEMBER_CONTAINER:
            key, outer = _plain(token[1]), within[-1]
            if outer == _TOOL:
                where = key
            within.append(_inside(outer, key))
        elif kind == _MEMBER_TEXT and within[-1] < _NAMED:
            key = _plain(token[1])
            if key == _TITLE or (key == _DESCRIPTION and within[-1] != _ANNOTATIONS):
                place = key if within[-1] == _TOOL else where
                member, (start, end) = token.start(), token.span(2)
                yield Prose(place[1:-1].decode("ascii"), key == _TITLE, member, start, end)


def rewritten(definition: bytes, texts: Sequence[tuple[Prose, str | None]]) -> bytes:
    """``definition`` with these texts in place of what was there, in its order; None takes the member away."""
    pieces: list[bytes] = []
    # What is cut away last begins and ends here: a member that is last in its object takes a comma before it.
    at = 0
    for piece, text in texts:
        if text is not None:
            pieces += (definition[at : piece.start], dump(text))
            at = piece.end
            continue
        pieces.append(definition[at : piece.member])
        at = _behind(definition, piece.end)
        if at == piece.end:
            _take_comma(pieces)
    pieces.append(definition[at:])
    return b"".join(pieces)


def _plain(quoted: bytes) -> bytes:
    """A key with its quotes, as it is spelled without needless escapes."""
    return quoted if b"\\" not in quoted else dump(json.loads(quoted))


def _inside(outer: int, key: bytes) -> int:
    if outer == _SCHEMA:
        return _OF_SCHEMA.get(key, _SCHEMA)
    if outer == _NAMED:
        return _SCHEMA
    return _OF_TOOL.get(key, _DATA) if outer == _TOOL else _DATA


_COMMA = re.compile(rb"\s*+,\s*+")


def _behind(definition: bytes, end: int) -> int:
    """Return the index where the next member begins, or ``end`` if there is none."""
    found = _COMMA.match(definition, end)
    return found.end() if found else end


def _take_comma(pieces: list[bytes]) -> None:
    """Take away the comma with which ``pieces`` ends, if it does."""
    while pieces:
        kept = pieces.pop().rstrip()
        if kept:
            pieces.append(kept.removesuffix(b","))
            return
