"""Token-Oriented Object Notation: JSON's values in fewer tokens, for a model to read. Pure.

Written as version 3 of its specification has it, with ``|`` between values and two spaces a level: a list of objects
that have the same keys and hold no others is a table whose head says the keys once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from adapter.rules.text.json_values import NotJson, plain

_DELIMITER = "|"
_KEY = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_NUMBER_LIKE = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_UNSAFE = re.compile(r'[:"\\\[\]{}|\x00-\x1f]|^[-#\s\ufeff]|\s$')


def toon(value: Any) -> str:
    """The value in this notation; an object without members is no text at all. Raises NotJson."""
    value = plain(value)
    try:
        if isinstance(value, dict):
            return "\n".join(_members(value, 0))
        if isinstance(value, list):
            return "\n".join(_array("", value, 0))
        return _scalar(value)
    except RecursionError:
        raise NotJson("The value is nested too deeply.") from None


def _members(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, member in value.items():
        yield from _member(_key(key), member, depth)


def _member(name: str, value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{_indent(depth)}{name}:"
        yield from _members(value, depth + 1)
    elif isinstance(value, list):
        yield from _array(name, value, depth)
    else:
        yield f"{_indent(depth)}{name}: {_scalar(value)}"


def _array(name: str, items: Sequence[Any], depth: int) -> Iterator[str]:
    head = f"{_indent(depth)}{name}[{len(items)}{_DELIMITER}]"
    if all(not isinstance(item, dict | list) for item in items):
        yield f"{head}: {_row(items)}" if items else f"{head}:"
    elif keys := _columns(items):
        yield f"{head}{{{_DELIMITER.join(map(_key, keys))}}}:"
        for item in items:
            yield _indent(depth + 1) + _row([item[key] for key in keys])
    else:
        yield f"{head}:"
        for item in items:
            yield from _item(item, depth + 1)


def _item(item: Any, depth: int) -> Iterator[str]:
    """One entry of a list that is no table: its first line stands behind a hyphen, the rest below that line's text."""
    if isinstance(item, dict):
        # The first member's own lines are one level deeper than the hyphen, as those of its siblings are.
        lines = _members(item, depth + 1)
    elif isinstance(item, list):
        lines = _nested(item, depth)
    else:
        lines = iter((_indent(depth + 1) + _scalar(item),))
    first = next(lines, None)
    if first is None:
        yield f"{_indent(depth)}-"
        return
    yield f"{_indent(depth)}- {first[len(_indent(depth + 1)) :]}"
    yield from lines


def _nested(items: Sequence[Any], depth: int) -> Iterator[str]:
    """A list in a list: a head without a name, and its items below the hyphen's level."""
    head = f"{_indent(depth + 1)}[{len(items)}{_DELIMITER}]:"
    if all(not isinstance(item, dict | list) for item in items):
        yield f"{head} {_row(items)}" if items else head
        return
    yield head
    for item in items:
        yield from _item(item, depth + 1)


def _columns(items: Sequence[Any]) -> list[str] | None:
    """The keys of a list's objects, if all have the same and hold only scalars."""
    first = items[0]
    if not isinstance(first, dict) or not first:
        return None
    for item in items:
        if not isinstance(item, dict) or item.keys() != first.keys():
            return None
        if any(isinstance(member, dict | list) for member in item.values()):
            return None
    return list(first)


def _row(items: Sequence[Any]) -> str:
    return _DELIMITER.join(map(_scalar, items))


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _decimal(value)
    if isinstance(value, int):
        return str(value)
    return _text(value)


def _decimal(number: float) -> str:
    text = format(Decimal(repr(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _text(text: str) -> str:
    reserved = text in ("", "true", "false", "null") or _NUMBER_LIKE.fullmatch(text)
    return _quoted(text) if reserved or _UNSAFE.search(text) else text


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _indent(depth: int) -> str:
    return "  " * depth
