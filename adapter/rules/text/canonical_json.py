"""One spelling for each JSON value, so that equal values have equal digests; and the differences of two. Pure.

It is RFC 8785 (JCS) with three additions. Texts and keys are in Unicode form NFKC; only keys of one object that would
become equal stay as they are. Integers of up to 64 bits that no double holds keep all their digits, since many readers
tell them apart; larger ones are doubles, as most readers have them. What RFC 8785 cannot spell is spelled all the
same: numbers beyond the doubles as ``1e999``, lone surrogates as escapes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple

import orjson

from adapter.rules.text.unicode import nfkc, shown

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
# What looks like one of these in a text merely takes the longer way.
_FLOAT = re.compile(rb"[:\[,]-?[0-9]++[.e]")
_INFINITY = re.compile(r"[ \[]-?inf[,\]}]")
_BEYOND_16_BITS = re.compile(rb"[\xf0-\xf4]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value as ``envelope.parse`` gives it, in UTF-8; of any depth."""
    if not isinstance(value, dict | list):
        return scalar(value)
    try:
        text = orjson.dumps(value, option=_SORTED)
    except orjson.JSONEncodeError:
        return _canonical(value)
    # orjson differs in its floats, of which it makes null of infinity, and in the order of what is beyond 16 bits.
    if _FLOAT.search(text) or (b"null" in text and _INFINITY.search(repr(value))):
        return _canonical(value)
    if not text.isascii() and (_BEYOND_16_BITS.search(text) or nfkc(form := text.decode("utf-8")) != form):
        return _canonical(value)
    return text


def _canonical(value: Any) -> bytes:
    pieces: list[bytes] = []
    # What is still to be written, last first: values, and bytes to be written as they are.
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if type(item) is bytes:
            pieces.append(item)
        elif isinstance(item, dict):
            todo.append(b"}")
            todo += _members(item)
            pieces.append(b"{")
        elif isinstance(item, list):
            todo.append(b"]")
            for position in range(len(item) - 1, -1, -1):
                todo.append(item[position])
                if position:
                    todo.append(b",")
            pieces.append(b"[")
        else:
            pieces.append(scalar(item))
    return b"".join(pieces)


def _members(item: dict[str, Any]) -> list[Any]:
    """The members of an object as they go on the stack: the last first, each value before its key."""
    forms = {key: nfkc(key) for key in item}
    times = Counter(forms.values())
    ordered = sorted(((_utf16(form), _utf16(key), key) for key, form in forms.items()), reverse=True)
    stacked: list[Any] = []
    for position, (_, _, key) in enumerate(ordered):
        comma = b"," if position < len(ordered) - 1 else b""
        # Keys that are one in NFKC stay as they are, or whoever reads the text again would find only one of them.
        name = forms[key] if times[forms[key]] == 1 else key
        stacked += (item[key], comma + _quoted(name) + b":")
    return stacked


def scalar(item: str | int | float | bool | None) -> bytes:
    """The canonical spelling of what holds no other values."""
    if isinstance(item, str):
        return _quoted(nfkc(item))
    if item is None:
        return b"null"
    if isinstance(item, bool):
        return b"true" if item else b"false"
    return _number(item).encode("ascii")


def _quoted(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        quoted = json.dumps(text, ensure_ascii=False)
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted).encode("utf-8")


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _number(number: int | float) -> str:
    if isinstance(number, int):
        try:
            double = float(number)
        except OverflowError:
            return "1e999" if number > 0 else "-1e999"
        if double != number and _LEAST <= number <= _MOST:
            return str(number)
        number = double
    if number == 0:
        return "0"
    return ("-" if number < 0 else "") + _positive(abs(number))


def _positive(number: float) -> str:
    """As ECMAScript spells a number (ECMA-262, Number::toString), from the same shortest digits."""
    if number == float("inf"):
        return "1e999"
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    leading = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(leading))
    digits = leading.rstrip("0")
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"


_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]{1,64}")
_LONGEST_KEY = 64
_LONGEST_PATH = 160


class Absent(Enum):
    ABSENT = "absent"


ABSENT: Literal[Absent.ABSENT] = Absent.ABSENT
"""What a member is that is not there."""


class Difference(NamedTuple):
    """``path`` is bounded and safe to show: ``inputSchema.properties.path.type``; one too deep ends in ``…``."""

    path: str
    old: Any
    new: Any


def differences(old: Any, new: Any) -> Iterator[Difference]:
    """Yield the places where two values differ in canonical form, sorted by their keys.

    A list differs as a whole if one of its items is no object or list, or if it became longer or shorter.
    """
    todo = [Difference("", old, new)]
    while todo:
        here = todo.pop()
        if isinstance(here.old, dict) and isinstance(here.new, dict):
            keys = sorted(here.old.keys() | here.new.keys(), reverse=True)
            todo += (
                Difference(_member(here.path, key), here.old.get(key, ABSENT), here.new.get(key, ABSENT))
                for key in keys
            )
        elif isinstance(here.old, list) and isinstance(here.new, list):
            if len(here.old) == len(here.new) and all(map(_holds_others, (*here.old, *here.new))):
                pairs = list(enumerate(zip(here.old, here.new, strict=True)))
                todo += (
                    Difference(_longer(here.path, f"[{place}]"), *pair) for place, pair in reversed(pairs)
                )
            elif canonical(here.old) != canonical(here.new):
                yield here
        elif _differ(here.old, here.new):
            yield here


def _differ(old: Any, new: Any) -> bool:
    if old is ABSENT or new is ABSENT or _holds_others(old) or _holds_others(new):
        return old is not new
    return scalar(old) != scalar(new)


def _holds_others(value: Any) -> bool:
    return isinstance(value, dict | list)


def _member(path: str, key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return _longer(path, f".{key}" if path else key)
    return _longer(path, f"[{shown(json.dumps(key[: _LONGEST_KEY + 1], ensure_ascii=False), _LONGEST_KEY)}]")


def _longer(path: str, step: str) -> str:
    if path.endswith("…"):
        return path
    return path + step if len(path) + len(step) <= _LONGEST_PATH else path + "…"
