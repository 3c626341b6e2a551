"""The places of the parts of a JSON-RPC response with a list, found in pieces of bounded length. Pure.

``scan`` and ``envelope.parse`` do the same at once, which takes seconds for what a hostile server may send.
Positions are found without judging what stands between them: what is not valid JSON ends in BadJson here, or where
its parts are parsed. The whole is JSON exactly when each item and the rest are.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from adapter.errors import BadJson
from adapter.wire.envelope import answers
from adapter.wire.piecewise import Piecewise
from adapter.wire.scan import CLOSE_ARRAY, CLOSE_OBJECT, OPEN_ARRAY, OPEN_OBJECT, Span, byte, run, unescape

STEP = 1 << 16
"""Bytes that one piece looks at, if it gets so far in ``LOOKS``."""

LOOKS = 1000
"""Values and brackets that one piece looks at."""

LONGEST_ID = 1 << 16
"""Bytes of a response's id that are read."""

DEEPEST = 100_000
"""Levels of nesting beyond which nothing is looked for any more."""

_QUOTE, _COMMA, _COLON, _BACKSLASH = b'",:\\'
_OPENING, _CLOSING = (OPEN_OBJECT, OPEN_ARRAY), (CLOSE_OBJECT, CLOSE_ARRAY)
_SPACES = tuple(b" \t\n\r")
_SPACE = re.compile(rb"[ \t\n\r]*+")
# Tools have schemas, which have properties, which have schemas: this is deep enough for most of them in one go.
_RUN = re.compile(run(8), re.DOTALL)
_TO_COMMA = re.compile(rb'[^"\[\]{},]*+')
_WORD = re.compile(rb"[-+.0-9a-zA-Z]*+")
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
# Escaped a character takes up to six bytes, and nobody here asks for longer keys.
_LONGEST_KEY = 6 * 32
_TOO_DEEP = b"[]"
_OF_RESPONSE = ("jsonrpc", "id", "method", "result", "error")


@dataclass(slots=True)
class Outline:
    """The members of a JSON-RPC response; of one that stands there twice, the last.

    ``list_at`` is the array ``result[key]``, None where there is none, and ``items`` where its items begin and end,
    one after the other.
    """

    members: dict[str, Span] = field(default_factory=dict)
    list_at: Span | None = None
    items: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def spans(self) -> list[Span]:
        """The items of the list."""
        return list(zip(self.items[::2], self.items[1::2], strict=True))

    def rest(self, doc: bytes) -> bytes:
        """The document with an empty list in the place of its list."""
        if self.list_at is None:
            return doc
        start, end = self.list_at
        return doc[:start] + b"[]" + doc[end:]


class _TooDeep(ValueError):
    """A value is nested beyond all measure."""


class TooManyItems(Exception):
    """A list has more items than anybody looks at."""


def outline(doc: bytes, key: str, most: int) -> Piecewise[Outline | None]:
    """The outline of a response whose result has a list under ``key``; None of what is no JSON object.

    Raises BadJson, and TooManyItems for a list of more than ``most``.
    """
    reader = Reader(doc)
    found = Outline()

    def listed() -> Piecewise[None]:
        found.list_at, found.items = None, array("Q")
        start = reader.at
        if byte(doc, start) == OPEN_ARRAY:
            found.items = yield from reader.items(most)
            found.list_at = start, reader.at
        else:
            yield from reader.skip()

    def result() -> Piecewise[None]:
        found.list_at, found.items = None, array("Q")
        if byte(doc, reader.at) == OPEN_OBJECT:
            yield from reader.members({key: listed}, {})
        else:
            yield from reader.skip()

    try:
        yield from reader.space()
        if byte(doc, reader.at) != OPEN_OBJECT:
            return None
        yield from reader.members({"result": result}, found.members)
    except ValueError:
        raise BadJson from None
    return found


def responds(doc: bytes, request_id: str | int | float | None) -> Piecewise[bool]:
    """As ``envelope.answers``, by the members of the message alone: its result may turn out to be no JSON."""
    try:
        message = yield from skeleton(doc)
    except BadJson:
        return False
    # Whoever looks into what is too deep says so.
    return message == _TOO_DEEP or answers(message, request_id)


def skeleton(doc: bytes) -> Piecewise[bytes]:
    """A message with its id, and with no more of its other members than that they are there: a string is empty then,
    and all else 0. Of what is too deep, an empty array. Raises BadJson.
    """
    reader = Reader(doc)
    spans: dict[str, Span] = {}
    try:
        yield from reader.space()
        if byte(doc, reader.at) == OPEN_OBJECT:
            yield from reader.members({}, spans)
    except _TooDeep:
        return _TOO_DEEP
    except ValueError:
        raise BadJson from None
    start, end = spans.pop("id", (0, 0))
    if end - start > LONGEST_ID:
        raise BadJson
    kinds = {name: b'""' if byte(doc, at) == _QUOTE else b"0" for name, (at, _) in spans.items()}
    members = [b'"%b":%b' % (name.encode(), kind) for name, kind in kinds.items()]
    if end:
        members.append(b'"id":' + doc[start:end])
    return b"{" + b",".join(members) + b"}"


def member(doc: bytes, key: str) -> Piecewise[Span | None]:
    """Find the value of ``key`` in the object ``doc``; None where it is no object, or has none. Raises BadJson."""
    reader = Reader(doc)
    found: list[Span] = []

    def visit() -> Piecewise[None]:
        start = reader.at
        yield from reader.skip()
        found.append((start, reader.at))

    try:
        if byte(doc, 0) == OPEN_OBJECT:
            yield from reader.members({key: visit}, {})
    except ValueError:
        raise BadJson from None
    return found[-1] if found else None


Visit = Callable[[], Piecewise[None]]


class Reader:
    """Goes through a document; ``at`` is where it stands. Every method raises ValueError for what is no JSON."""

    def __init__(self, doc: bytes) -> None:
        self.doc = doc
        self.at = 0
        self._pause_at = STEP
        self._looks = 0
        self._ends: dict[int, int] = {}

    def go_back(self, at: int) -> None:
        """Stand at a place that was passed."""
        self.at, self._pause_at = at, at + STEP

    def _is_due(self) -> bool:
        """Tell whether this piece has been long enough."""
        self._looks += 1
        if self.at < self._pause_at and self._looks < LOOKS:
            return False
        self._pause_at, self._looks = self.at + STEP, 0
        return True

    def space(self) -> Piecewise[None]:
        while byte(self.doc, self.at) in _SPACES:
            self._go(_SPACE)
            if self._is_due():
                yield None

    def _go(self, pattern: re.Pattern[bytes]) -> None:
        """Go on for as long as the pattern, which may match nothing, does."""
        found = pattern.match(self.doc, self.at, self.at + STEP)
        assert found is not None, "it matches nothing, too"
        self.at = found.end()

    # --- values -----------------------------------------------------------------------------------------------

    def skip(self) -> Piecewise[None]:
        """Go behind the value that begins here."""
        opening = byte(self.doc, self.at)
        if opening == _QUOTE:
            yield from self.string()
        elif opening in _OPENING:
            yield from self._container()
        else:
            yield from self._word()

    def string(self) -> Piecewise[None]:
        doc, start = self.doc, self.at
        if byte(doc, start) != _QUOTE:
            raise ValueError(f"no string at byte {start}")
        if start in self._ends:
            self.at = self._ends[start]
            return
        quote = doc.find(b'"', start + 1)
        if quote > 0 and doc[quote - 1] != _BACKSLASH:
            self.at = quote + 1
            return
        self.at = start + 1
        while byte(doc, self.at) != _QUOTE:
            before = self.at
            self._go(_IN_STRING)
            if self.at == before:
                raise ValueError(f"the string at byte {start} does not end")
            if self._is_due():
                yield None
        self.at += 1
        if self.at - start > STEP:
            self._ends[start] = self.at

    def _word(self) -> Piecewise[None]:
        """A number, or what is spelled with letters."""
        start = before = self.at
        self._go(_WORD)
        while self.at > before:
            before = self.at
            if self._is_due():
                yield None
            self._go(_WORD)
        if self.at == start:
            raise ValueError(f"no value at byte {start}")

    def _container(self) -> Piecewise[None]:
        doc, start, depth = self.doc, self.at, 0
        while True:
            found = byte(doc, self.at)
            if found == _QUOTE:
                yield from self.string()
            else:
                if found in _OPENING:
                    depth += 1
                elif found in _CLOSING:
                    depth -= 1
                if depth > DEEPEST:
                    raise _TooDeep
                if found < 0:
                    raise ValueError(f"the value at byte {start} does not end")
                self.at += 1
                if depth == 0:
                    return
            self._go(_RUN)
            if self._is_due():
                yield None

    # --- what holds others ------------------------------------------------------------------------------------

    def members(self, visits: Mapping[str, Visit], spans: dict[str, Span]) -> Piecewise[None]:
        """Go through the object that begins here, by ``visits`` through the values of these keys.

        ``spans`` learns where the values stand that make a response.
        """
        doc = self.doc
        more = yield from self.enter(CLOSE_OBJECT)
        while more:
            begin, end = yield from self.key()
            key = unescape(doc[begin:end]) if end - begin <= _LONGEST_KEY else ""
            start = self.at
            visit = visits.get(key)
            yield from self.skip() if visit is None else visit()
            if key.lower() in _OF_RESPONSE:  # as readers in Go see it
                spans[key] = start, self.at
            more = yield from self.next(CLOSE_OBJECT)

    def items(self, most: int) -> Piecewise[array[int]]:
        """Find where the items of the array that begins here begin and end. Raises TooManyItems."""
        found = array("Q")
        more = yield from self.enter(CLOSE_ARRAY)
        while more:
            if len(found) >= 2 * most:
                raise TooManyItems
            found.append(self.at)
            if not self.is_behind_flat():
                yield from self.skip()
            found.append(self.at)
            more = yield from self.next(CLOSE_ARRAY)
        return found

    def short_items(self, long: int) -> Piecewise[int | None]:
        """Go behind items of the array within which this stands, for about ``long`` bytes.

        Returns where one of more than ``long`` bytes begins, behind which it stands then; None without such a one.
        """
        doc, start = self.doc, self.at
        while True:
            self._go(_RUN if self.at - start < long else _TO_COMMA)
            found = byte(doc, self.at)
            if found in (CLOSE_ARRAY, _COMMA):
                return None
            if found == _QUOTE or found in _OPENING:
                begin = self.at
                yield from self.skip()
                if self.at - begin > long:
                    return begin
            elif found in (CLOSE_OBJECT, -1):
                raise ValueError(f"the array with byte {start} does not end")
            if self._is_due():
                yield None

    def is_behind_flat(self) -> bool:
        """Go behind the container that begins here if one look at it is enough, as it is with most tools."""
        doc, start = self.doc, self.at
        if byte(doc, start) not in _OPENING:
            return False
        inside = _RUN.match(doc, start + 1, start + STEP)
        if inside is None or byte(doc, inside.end()) not in _CLOSING:
            return False
        self.at = inside.end() + 1
        return True

    def key(self) -> Piecewise[Span]:
        """Where the key stands that begins here; then goes on to its value."""
        start = self.at
        yield from self.string()
        end = self.at
        yield from self.space()
        if byte(self.doc, self.at) != _COLON:
            raise ValueError(f"no colon after the key at byte {start}")
        self.at += 1
        yield from self.space()
        return start, end

    def enter(self, closing: int) -> Piecewise[bool]:
        """Tell whether there is anything in the container that begins here; then stands at the first of it."""
        self.at += 1
        yield from self.space()
        if byte(self.doc, self.at) != closing:
            return True
        self.at += 1
        return False

    def next(self, closing: int) -> Piecewise[bool]:
        """Tell whether another member or item follows; then stands there, else behind the container."""
        found = byte(self.doc, self.at)
        if found in _SPACES:
            yield from self.space()
            found = byte(self.doc, self.at)
        if found not in (closing, _COMMA):
            raise ValueError(f"no comma at byte {self.at}")
        self.at += 1
        if found == closing:
            return False
        if byte(self.doc, self.at) in _SPACES:
            yield from self.space()
        if self._is_due():
            yield None
        return True
