"""The places of the values in JSON bytes.

The input is taken to be valid JSON, because the caller has parsed it; what is not valid ends in ValueError or
in a meaningless span, never in a loop. Work is linear in the document and independent of its nesting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Path = Sequence[str | int]
Span = tuple[int, int]

_SPACE = re.compile(rb"[ \t\n\r]*+")
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+|(?!))*+', re.DOTALL)
_STEP = 1 << 20
"""Bytes that are looked through at once, in up to thirty milliseconds: other threads wait for the end of a look."""
TEXT = 1 << 16
"""Bytes of a string that are read at once."""
_LONGEST_ESCAPE = 12
# Whole escapes only, those of two surrogates as one.
_WHOLE = re.compile(
    rb'(?:[^"\\]++|\\[^u]|\\u(?:(?![dD][89abAB])[0-9a-fA-F]{4}|[dD][89abAB][0-9a-fA-F]{2}'
    rb"(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{4})))|(?!))*+",
    re.DOTALL,
)
_SCALAR = re.compile(rb"true|false|null|-?[0-9][-+.0-9eE]*+")
# A key without escapes and, where it is as plain, its value too with what follows it: one call instead of ten.
_PLAIN_MEMBER = re.compile(
    rb'"([^"\\]{0,200}+)"[ \t\n\r]*+:[ \t\n\r]*+'
    rb'(?>("[^"\\]{0,200}+"|true|false|null|-?[0-9][-+.0-9eE]*+)[ \t\n\r]*+([,}])[ \t\n\r]*+|)'
)


# Long strings are left alone: for those bytes.find is many times faster than any pattern.
_SHORT_STRING = rb'"[^"\\]{0,200}+(?:\\.[^"\\]{0,200}+){0,50}+"'


def run(levels: int) -> bytes:
    """A pattern of whatever may follow each other in a container, itself nested at most ``levels`` deep."""
    inner = rb"|[\[{]" + run(levels - 1) + rb"[\]}]" if levels else b""
    # Before 3.11.5 Python goes back to where the last round began only for the (?!) (CPython issue 106052). An atomic
    # group would need none, but keeps 57 bytes of memory for each byte of a text of short strings.
    return rb'(?:[^"\[\]{}]++|' + _SHORT_STRING + inner + rb"|(?!))*+"


_RUN = re.compile(run(8), re.DOTALL)
# Brackets one behind the other, with what stands between them.
_OPENINGS = re.compile(rb"(?:[\[{]" + run(0) + rb")++", re.DOTALL)
_CLOSINGS = re.compile(rb"(?:[\]}]" + run(0) + rb")++", re.DOTALL)
_STRINGS = re.compile(_SHORT_STRING, re.DOTALL)
_NOT_CLOSING = bytes(set(range(256)) - set(b"]}"))
_NOT_OPENING = bytes(set(range(256)) - set(b"[{"))
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = b"{}[]"


class Member(NamedTuple):
    """One member of an object; ``key`` is unescaped, ``key_start`` is where its opening quote stands."""

    key: str
    key_start: int
    value_start: int
    value_end: int


def find(doc: bytes, path: Path) -> Span | None:
    """The span of the value at ``path``, or None where there is none. Of duplicate keys the last counts."""
    start = skip_space(doc, 0)
    end: int | None = None
    for step in path:
        found = _child(doc, start, step)
        if found is None:
            return None
        start, end = found
    return start, end_of_value(doc, start) if end is None else end


def members(doc: bytes, start: int = 0) -> Iterator[Member]:
    """The members of the object at ``start``, in order, duplicates included. ValueError if it is none."""
    at = _enter(doc, start, OPEN_OBJECT)
    if doc.startswith(b"}", at):
        return
    while True:
        plain = _PLAIN_MEMBER.match(doc, at)
        if plain is not None:
            value, end = plain.span(2)
            if value >= 0:
                yield Member(plain[1].decode("utf-8"), at, value, end)
                if plain[3] == b"}":
                    return
                at = plain.end()
                continue
            value = plain.end()
            end = end_of_value(doc, value)
            yield Member(plain[1].decode("utf-8"), at, value, end)
            at = _next(doc, end, CLOSE_OBJECT)
            if at < 0:
                return
            continue
        key_end = _string_end(doc, at)
        colon = skip_space(doc, key_end)
        if byte(doc, colon) != _COLON:
            raise ValueError(f"no colon after the key at byte {at}")
        value = skip_space(doc, colon + 1)
        end = end_of_value(doc, value)
        yield Member(unescape(doc[at:key_end]), at, value, end)
        at = _next(doc, end, CLOSE_OBJECT)
        if at < 0:
            return


def items(doc: bytes, start: int = 0) -> Iterator[Span]:
    """The spans of the items of the array at ``start``, in their order. ValueError if it is no array."""
    at = _enter(doc, start, OPEN_ARRAY)
    if byte(doc, at) == CLOSE_ARRAY:
        return
    while True:
        end = end_of_value(doc, at)
        yield at, end
        at = _next(doc, end, CLOSE_ARRAY)
        if at < 0:
            return


def _child(doc: bytes, start: int, step: str | int) -> Span | None:
    opening = byte(doc, start)
    if isinstance(step, str):
        found = None
        if opening == OPEN_OBJECT:
            for member in members(doc, start):
                if member.key == step:
                    found = member.value_start, member.value_end
        return found
    if opening == OPEN_ARRAY and step >= 0:
        for index, span in enumerate(items(doc, start)):
            if index == step:
                return span
    return None


def byte(doc: bytes, at: int) -> int:
    """The byte at ``at``, -1 behind the end."""
    return doc[at] if at < len(doc) else -1


def skip_space(doc: bytes, at: int) -> int:
    """The first position from ``at`` on that holds no white space of JSON."""
    # Most JSON on the wire has no space here, and a regex call costs ten comparisons.
    if at < len(doc) and doc[at] > 0x20:
        return at
    found = _SPACE.match(doc, at)
    return found.end() if found else at


def _enter(doc: bytes, start: int, opening: int) -> int:
    start = skip_space(doc, start)
    if byte(doc, start) != opening:
        raise ValueError(f"no {chr(opening)} at byte {start}")
    return skip_space(doc, start + 1)


def _next(doc: bytes, end: int, closing: int) -> int:
    """Find where the next member or item begins, or -1 if the container closes here."""
    at = skip_space(doc, end)
    found = byte(doc, at)
    if found == closing:
        return -1
    if found != _COMMA:
        raise ValueError(f"no comma at byte {at}")
    return skip_space(doc, at + 1)


def _string_end(doc: bytes, start: int) -> int:
    if not doc.startswith(b'"', start):
        raise ValueError(f"no string at byte {start}")
    quote = doc.find(b'"', start + 1)
    if quote > 0 and doc[quote - 1] != _BACKSLASH:
        return quote + 1
    at = start + 1
    while found := _IN_STRING.match(doc, at, at + _STEP):
        if byte(doc, found.end()) == _QUOTE:
            return found.end() + 1
        if found.end() == at:
            break
        at = found.end()
    raise ValueError(f"the string at byte {start} does not end")


def end_of_value(doc: bytes, start: int) -> int:
    """Find where the value that begins at ``start`` ends. Raises ValueError if none does."""
    opening = doc[start] if start < len(doc) else -1
    if opening == _QUOTE:
        return _string_end(doc, start)
    if opening in (OPEN_OBJECT, OPEN_ARRAY):
        return _container_end(doc, start)
    found = _SCALAR.match(doc, start)
    if found is None:
        raise ValueError(f"no value at byte {start}")
    return found.end()


def _container_end(doc: bytes, start: int) -> int:
    """Skip small containers as a whole, and many brackets at once in what is nested deeper."""
    depth, at, deep = 0, start, False
    while True:
        bracket = doc[at] if at < len(doc) else -1
        if bracket in (CLOSE_OBJECT, CLOSE_ARRAY):
            if depth == 1:
                return at + 1
            run = _CLOSINGS.match(doc, at, at + _STEP)
            assert run is not None, "it begins with the bracket"
            closed = len(_STRINGS.sub(b"", run[0]).translate(None, _NOT_CLOSING))
            if closed >= depth:
                return _end_of_closing(doc, at, depth)
            depth, at, deep = depth - closed, _run_end(doc, run.end()), False
        elif bracket not in (OPEN_OBJECT, OPEN_ARRAY):
            raise ValueError(f"the value at byte {start} does not end")
        elif deep:
            run = _OPENINGS.match(doc, at, at + _STEP)
            assert run is not None, "it begins with the bracket"
            depth += len(_STRINGS.sub(b"", run[0]).translate(None, _NOT_OPENING))
            at, deep = _run_end(doc, run.end()), False
        else:
            depth, at, deep = depth + 1, _run_end(doc, at + 1), True


def _end_of_closing(doc: bytes, at: int, depth: int) -> int:
    """Find where the bracket ends that closes ``depth`` containers, in a run of closing ones that begins at ``at``."""
    while depth > 1:
        depth, at = depth - 1, _run_end(doc, at + 1)
    return at + 1


def _run_end(doc: bytes, at: int) -> int:
    """The next bracket behind ``at`` that is in no string, passing over small containers as a whole."""
    while found := _RUN.match(doc, at, at + _STEP):
        end = found.end()
        if doc.startswith(b'"', end):
            at = _string_end(doc, end)
            continue
        if end <= at + _STEP // 2 or end >= len(doc) or doc[end] in b"]}":
            return end
        # The end of the look may have cut a container here, and the next look may pass over that.
        at = end
    return at


def text_pieces(doc: bytes, start: int, end: int, step: int = TEXT) -> Iterator[str]:
    """The text between the quotes of a string, which stands from ``start`` to ``end``, in pieces of about ``step``
    bytes, of more than a dozen. Raises ValueError for what is no text.
    """
    while end - start > step:
        stop = start + step
        if b"\\" in doc[stop - _LONGEST_ESCAPE : stop]:
            stop = _between_escapes(doc, start, stop)
        while stop > start and doc[stop] & 0xC0 == 0x80:  # within a character
            stop -= 1
        if stop == start:
            break
        yield json.loads(f'"{doc[start:stop].decode("utf-8")}"')
        start = stop
    yield json.loads(f'"{doc[start:end].decode("utf-8")}"')


def _between_escapes(doc: bytes, start: int, stop: int) -> int:
    """The last place before ``stop`` that is known to lie in no escape; ``start`` where a bad one begins there."""
    at = doc.rfind(b"\\", start, stop)
    while at > start and doc[at - 1] == _BACKSLASH:
        at -= 1
    if at > start and doc[at - 6 : at - 4] != b"\\u":  # it may be the first of two surrogates
        return at
    whole = _WHOLE.match(doc, start, stop)
    return start if whole is None else whole.end()


def unescape(quoted: bytes) -> str:
    if _BACKSLASH not in quoted:
        return quoted[1:-1].decode("utf-8")
    text: str = json.loads(quoted)
    return text


# --- how many values ------------------------------------------------------------------------------------------

_BEFORE_A_VALUE = b",[{"
_OTHERS = bytes(set(range(256)) - set(_BEFORE_A_VALUE))
_SLICE = 1 << 18

_LARGE = 1 << 17

_RARE = 200
"""Times that a sign is looked for before it is counted: all of these take less than the count."""


def is_rare(text: bytes, sign: bytes, most: int) -> bool:
    """Tell whether a byte stands in a text fewer than ``most`` times: to find a rare one is ten times as fast as to
    count it.
    """
    at = -1
    for _ in range(most):
        at = text.find(sign, at + 1)
        if at < 0:
            return True
    return False


def values_at_most(text: bytes) -> int:
    """No JSON text has more values than this, names of members left out. What stands in strings counts as well.

    It costs about a third of a millisecond for a mebibyte, and a tenth of that for a file in base64.
    """
    if len(text) > _LARGE and all(is_rare(text, each, _RARE) for each in (b",", b"[", b"{")):
        return 3 * _RARE
    return len(text.translate(None, _OTHERS)) + 1


def has_more_values(text: bytes, most: int) -> bool:
    """Tell whether a JSON text has more than ``most`` values, an empty array or object counted as two."""
    return len(text) > most and values_at_most(text) > most and values_in(text) > most


def values_in(text: bytes) -> int:
    """How many values a JSON text has, an empty array or object counted as two."""
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # In slices, so that other threads come to their turn.
    found, inside = 1, 0
    for start in range(0, len(plain), _SLICE):
        pieces = plain[start : start + _SLICE].split(b'"')
        found += len(b"".join(pieces[inside::2]).translate(None, _OTHERS))
        inside ^= len(pieces) - 1 & 1
    return found
