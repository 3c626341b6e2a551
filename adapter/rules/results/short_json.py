"""JSON and texts made shorter without being broken. Pure.

Lists end earlier and texts are cut; what is left is valid JSON in the spelling in which it came. Nothing is parsed but
the texts that are cut, so that the cost is that of finding where values end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from adapter.wire.envelope import dump
from adapter.wire.scan import (
    OPEN_ARRAY,
    OPEN_OBJECT,
    byte,
    end_of_value,
    items,
    members,
    skip_space,
    text_pieces,
)
from adapter.wire.spans import Span

MORE = "…"
"""The end of a text that was cut."""

_LONGEST_MORE = len(r"\u2026")

SHORT_TEXT = 120
"""Bytes of a text, with its quotes, that is never cut."""

DEEPEST = 16
"""Levels at which anything is left out; what is nested deeper stays whole, or goes with the item that holds it."""

Keeps = Literal["members", "room"]
"""Whether all members of objects stay, as a schema may require them, or as many as there is room for."""

_LARGE = 4096
"""Bytes of an object whose least is remembered."""

_QUOTE = ord('"')


def beginning(text: str, room: int) -> str:
    """The longest beginning of a text that has at most so many bytes as JSON, quotes included."""
    text = text[: max(0, room - 2)]
    if len(dump(text)) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(dump(text[:middle])) <= room else (low, middle - 1)
    return text[:low]


def json_in(text: bytes) -> Span | None:
    """The place of the object, list or string of JSON that a text is, None for any other text. Its inside is not
    looked at.
    """
    start = skip_space(text, 0)
    if byte(text, start) not in (OPEN_OBJECT, OPEN_ARRAY, _QUOTE):
        return None
    try:
        end = end_of_value(text, start)
    except ValueError:
        return None
    return (start, end) if skip_space(text, end) == len(text) else None


def shortened(doc: bytes, span: Span, room: int, keeps: Keeps) -> bytes | None:
    """The JSON value at ``span`` in at most ``room`` bytes, None where it cannot be made as short.

    Raises ValueError for what is no JSON.
    """
    short = _Shortening(doc, keeps)
    least = short.least(span, 0, room)
    if least > room:
        return None
    short.left = room - least
    return b"".join(short.value(span, 0))


class _Shortening:
    """Spends what is ``left`` of the room, beyond the least that each value needs, from the first value on."""

    def __init__(self, doc: bytes, keeps: Keeps) -> None:
        self._doc = doc
        self._keeps = keeps
        self.left = 0
        self._least: dict[int, int] = {}

    def least(self, span: Span, depth: int, most: int) -> int:
        """The bytes of a value of which as much as may be is left out; above ``most`` they are not counted further."""
        start, end = span
        if (known := self._least.get(start)) is not None:
            return known
        opening = byte(self._doc, start)
        if opening == _QUOTE:
            return min(end - start, SHORT_TEXT)
        if depth >= DEEPEST or opening not in (OPEN_OBJECT, OPEN_ARRAY):
            return end - start
        if opening == OPEN_ARRAY or self._keeps == "room":
            return 2
        least = 2
        for each in self._members(start):
            if least > most:
                return least
            least += self._member(*each, depth, most - least)
        if end - start > _LARGE:
            # Else each level would be looked through again for each level above it.
            self._least[start] = least
        return least

    def value(self, span: Span, depth: int) -> Iterator[bytes]:
        """The pieces of a value whose least is paid for."""
        start, end = span
        whole = end - start - self.least(span, depth, end - start)
        if whole <= self.left:
            self.left -= whole
            yield self._doc[start:end]
            return
        opening = byte(self._doc, start)
        if opening == _QUOTE:
            yield self._text(span)
            return
        brackets = b"[]" if opening == OPEN_ARRAY else b"{}"
        yield brackets[:1]
        yield from self._array(start, depth) if opening == OPEN_ARRAY else self._object(start, depth)
        yield brackets[1:]

    def _text(self, span: Span) -> bytes:
        room = SHORT_TEXT + self.left
        piece = next(text_pieces(self._doc, span[0] + 1, span[1] - 1, step=room))
        text = dump(beginning(piece, room - _LONGEST_MORE) + MORE)
        self.left = max(0, room - len(text))
        return text

    def _array(self, start: int, depth: int) -> Iterator[bytes]:
        comma = b""
        for item in items(self._doc, start):
            least = len(comma) + self.least(item, depth + 1, self.left)
            # Whole items are worth more than many whose texts are cut; one of those is better than none.
            if max(least, item[1] - item[0] if comma else 0) > self.left:
                return
            self.left -= least
            yield comma
            yield from self.value(item, depth + 1)
            comma = b","

    def _object(self, start: int, depth: int) -> Iterator[bytes]:
        comma = b""
        for key, value in self._members(start):
            if self._keeps == "room":
                least = self._member(key, value, depth, self.left)
                if least > self.left:
                    return
                self.left -= least
            yield comma + key + b":"
            yield from self.value(value, depth + 1)
            comma = b","

    def _member(self, key: bytes, value: Span, depth: int, most: int) -> int:
        """The least bytes of a member, with its colon and a comma."""
        return len(key) + 2 + self.least(value, depth + 1, most)

    def _members(self, start: int) -> Iterator[tuple[bytes, Span]]:
        for each in members(self._doc, start):
            key = self._doc[each.key_start : each.value_start].rstrip(b" \t\r\n:")
            yield key, (each.value_start, each.value_end)
