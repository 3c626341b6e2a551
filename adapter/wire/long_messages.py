"""Parsing long messages in pieces, so that others have their turn meanwhile. Pure.

One call of a parser for 64 MiB takes up to a tenth of a second, and two seconds where they are nothing but brackets.
A thread does not help, since the parser keeps the interpreter to itself.
"""

from __future__ import annotations

from typing import Any

from adapter.errors import BadJson
from adapter.wire.envelope import parse
from adapter.wire.outline import Reader, TooManyItems
from adapter.wire.piecewise import Piecewise
from adapter.wire.scan import CLOSE_ARRAY, CLOSE_OBJECT, OPEN_ARRAY, OPEN_OBJECT, byte, text_pieces, values_in

LONG = 1 << 17
"""Bytes of a value that is parsed at once, in some milliseconds."""

MOST_VALUES = 500_000
"""Values of a long message: the collector looks at all of them at once, and they are given back at once."""

DEEPEST_LONG = 32
"""Levels at which values may be long."""

_QUOTE = ord('"')


def parsed(doc: bytes) -> Piecewise[Any]:
    """As ``envelope.parse``. Raises BadJson, and TooManyItems for more than MOST_VALUES."""
    parsing = _Parsing(doc)
    try:
        yield from parsing.reader.space()
        value = yield from parsing.value(0)
        yield from parsing.reader.space()
    except ValueError:
        raise BadJson from None
    if parsing.reader.at != len(doc):
        raise BadJson
    return value


class _Parsing:
    def __init__(self, doc: bytes) -> None:
        self.reader = Reader(doc)
        self._left = MOST_VALUES

    def value(self, depth: int) -> Piecewise[Any]:
        """The value that begins where the reader stands, which then stands behind it. Raises ValueError, BadJson."""
        reader = self.reader
        doc, start = reader.doc, reader.at
        opening = byte(doc, start)
        if opening in (OPEN_ARRAY, OPEN_OBJECT) and depth < DEEPEST_LONG and not reader.is_behind_flat():
            return (yield from (self._array(depth) if opening == OPEN_ARRAY else self._object(depth)))
        if reader.at == start:
            yield from reader.skip()
        end = reader.at
        if end - start <= LONG:
            self._count(values_in(doc[start:end]))
            return parse(doc[start:end])
        if opening != _QUOTE:
            raise ValueError("no value is as deep, and no word as long")
        self._count(1)
        return (yield from _text(doc, start + 1, end - 1))

    def _array(self, depth: int) -> Piecewise[list[Any]]:
        reader = self.reader
        found: list[Any] = []
        more = yield from reader.enter(CLOSE_ARRAY)
        while more:
            start = reader.at
            long = yield from reader.short_items(LONG)
            if long is None:
                found += self._several(reader.doc[start : reader.at])
            else:
                if short := reader.doc[start:long].rstrip(b" \t\n\r"):
                    if not short.endswith(b","):
                        raise ValueError(f"no comma at byte {long}")
                    found += self._several(short[:-1])
                reader.go_back(long)
                found.append((yield from self.value(depth + 1)))
            more = yield from reader.next(CLOSE_ARRAY)
        return found

    def _several(self, items: bytes) -> list[Any]:
        self._count(values_in(items))
        values: list[Any] = parse(b"[%b]" % items)
        if not values:
            raise ValueError("a comma and no item")
        return values

    def _object(self, depth: int) -> Piecewise[dict[str, Any]]:
        reader, found = self.reader, {}
        more = yield from reader.enter(CLOSE_OBJECT)
        while more:
            start, end = yield from reader.key()
            if end - start > LONG:
                raise ValueError("no name is as long")
            name = parse(reader.doc[start:end])
            found[name] = yield from self.value(depth + 1)
            more = yield from reader.next(CLOSE_OBJECT)
        return found

    def _count(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise TooManyItems


def _text(doc: bytes, start: int, end: int) -> Piecewise[str]:
    pieces = []
    for piece in text_pieces(doc, start, end):
        pieces.append(piece)
        yield None
    text = "".join(pieces)
    yield None  # to give the pieces back takes as long again
    return text
