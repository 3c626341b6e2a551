"""JSON as people write it, with comments and commas at the end: one member is put in or taken out, and every other byte
stays. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from adapter.wire.scan import CLOSE_OBJECT, OPEN_OBJECT, Member, byte, end_of_value, members, skip_space

_COMMENT = re.compile(rb'("(?:[^"\\]++|\\.)*+"?+)|//[^\r\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NO_BREAK = re.compile(rb"[^\r\n]")
_LAST_COMMA = re.compile(rb'("(?:[^"\\]++|\\.)*+"?+)|,(?=\s*+[}\]])', re.DOTALL)
_INDENT = re.compile(rb"^([ \t]+)[^\s]", re.MULTILINE)
_REST_OF_LINE = re.compile(rb"[ \t]*+(?:\r?\n|//)")

MOST_OF_A_NAME = 20
"""Members of one name that are taken out: each takes a look at the whole text."""


def without_comments(text: bytes) -> bytes:
    """The text with spaces in place of each comment and of each comma behind the last value: plain JSON, in which
    everything has its place, also its line.
    """
    return _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(found: re.Match[bytes]) -> bytes:
    return found[0] if found[1] is not None else _NO_BREAK.sub(b" ", found[0])


def with_member(text: bytes, keys: Sequence[str], value: Any) -> bytes:
    """Return the text with ``value`` at ``keys``, whether something is there or not.

    Objects on the way are made where none or null is. Raises ValueError where something else is in the way, or for a
    text that is no object.
    """
    seen = without_comments(text)
    start, member = skip_space(seen, 0), None
    for step, key in enumerate(keys):
        if byte(seen, start) != OPEN_OBJECT:
            if member is None or seen[start : member.value_end] != b"null":
                raise ValueError(f"{keys[step - 1] if step else 'it'} is no object")
            return _replaced(text, member, _nested(keys[step:], value))
        member = _last(seen, start, key)
        if member is None:
            return _added(text, seen, start, key, _nested(keys[step + 1 :], value))
        start = member.value_start
    assert member is not None, "keys are not empty"
    return _replaced(text, member, value)


def without_member(text: bytes, keys: Sequence[str]) -> bytes:
    """Return the text without the member at ``keys``, nor others of that name beside it, MOST_OF_A_NAME at most."""
    for _ in range(MOST_OF_A_NAME):
        seen = without_comments(text)
        start = skip_space(seen, 0)
        for key in keys[:-1]:
            parent = _last(seen, start, key)
            if parent is None:
                return text
            start = parent.value_start
        found = list(members(seen, start))
        place = next((number for number, each in enumerate(found) if each.key == keys[-1]), None)
        if place is None:
            return text
        text = _taken_out(text, found, place)
    return text


def _last(seen: bytes, start: int, key: str) -> Member | None:
    """The member that counts, where there are several of one name."""
    return next((each for each in reversed(list(members(seen, start))) if each.key == key), None)


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


# --- cuts -------------------------------------------------------------------------------------------------------


def _replaced(text: bytes, member: Member, value: Any) -> bytes:
    written = _written(value, text, _indent_of_line(text, member.key_start))
    return text[: member.value_start] + written + text[member.value_end :]


def _added(text: bytes, seen: bytes, start: int, key: str, value: Any) -> bytes:
    """Put a member behind all others and their comments, in a line of its own unless the object has only one line."""
    found = list(members(seen, start))
    close = end_of_value(seen, start) - 1
    assert byte(seen, close) == CLOSE_OBJECT, "the text was read before"
    end = len(text[:close].rstrip())
    name = json.dumps(key, ensure_ascii=False).encode() + b": "
    if found and b"\n" not in text[start:close]:
        written = b" " + name + json.dumps(value, ensure_ascii=False).encode()
        return _joined(text, found, end, written, text[end:])
    base = _indent_of_line(text, found[-1].key_start if found else start)
    inner = base if found else base + _unit(text)
    written = _newline(text) + inner + name + _written(value, text, inner)
    rest = text[end:] if b"\n" in text[end:close] else _newline(text) + base + text[close:]
    return _joined(text, found, end, written, rest)


def _joined(text: bytes, found: list[Member], end: int, written: bytes, rest: bytes) -> bytes:
    """The text up to ``end``, what is ``written`` there, and the ``rest``, with the comma that is needed between."""
    if not found:
        return text[:end] + written + rest
    last = found[-1].value_end
    if _comma_behind(text, last) is not None:
        return text[:end] + written + b"," + rest
    return text[:last] + b"," + text[last:end] + written + rest


def _taken_out(text: bytes, found: list[Member], place: int) -> bytes:
    """Cut a member with the line break ahead of it, and the comma that is one too many: its own, or that before the
    last one.

    Comments stay, whomever they are about. So does the line break where more follows: it may end a comment.
    """
    start, end = found[place].key_start, found[place].value_end
    own = _comma_behind(text, end)
    comma = own if own is not None or not place else _comma_behind(text, found[place - 1].value_end)
    commas = (len(text), len(text)) if comma is None else (comma, comma + 1)
    line = text[: start - len(_indent_of_line(text, start))]
    if line.endswith(b"\n") and _REST_OF_LINE.match(text, end if own is None else own + 1):
        start = len(line.removesuffix(b"\n").removesuffix(b"\r"))
    elif own is None:
        start = len(text[:start].rstrip(b" \t"))
    else:
        commas = own, len(text) - len(text[own + 1 :].lstrip(b" \t"))
    (first, last), (again, until) = sorted([(start, end), commas])
    return text[:first] + text[last:again] + text[until:]


def _comma_behind(text: bytes, end: int) -> int | None:
    """The place of the comma that follows a value, also behind the last one; None where none does."""
    seen = _COMMENT.sub(_blank, text)
    at = skip_space(seen, end)
    return at if seen[at : at + 1] == b"," else None


# --- looks ------------------------------------------------------------------------------------------------------


def _written(value: Any, text: bytes, base: bytes) -> bytes:
    """The value as JSON, in one line where the whole text has one, else indented as the text is."""
    if text.strip() not in (b"", b"{}") and b"\n" not in text:
        return json.dumps(value, ensure_ascii=False).encode()
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text).decode()).encode().split(b"\n")
    return (_newline(text) + base).join(lines)


def _unit(text: bytes) -> bytes:
    found = _INDENT.search(text)
    return found[1] if found else b"  "


def _newline(text: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in text else b"\n"


def _indent_of_line(text: bytes, at: int) -> bytes:
    line = text[text.rfind(b"\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]
