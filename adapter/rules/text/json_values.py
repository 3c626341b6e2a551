"""The values that scripts and drivers return, as JSON: plain values, and their two spellings. Pure."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Mapping, Set
from decimal import Decimal
from enum import Enum
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from numbers import Integral, Real
from typing import Any
from uuid import UUID

import orjson

_COMPACT = orjson.OPT_NON_STR_KEYS
_SCALARS = frozenset((int, float, bool, type(None)))
_TEXTS = (Decimal, UUID, IPv4Address, IPv6Address, IPv4Network, IPv6Network)
_INDENTED = _COMPACT | orjson.OPT_INDENT_2


class NotJson(ValueError):
    """A value that JSON cannot hold: an object of an unknown class, one that holds itself, or too deep nesting."""


MOST_TEXT = 16 << 20
"""Characters of text in a value that becomes a result: writing more would keep everybody else waiting."""

MOST_VALUES = 250_000
"""Values in it, for the same reason."""


class TooLarge(NotJson):
    """A value that is too large for a result."""


def is_number(value: Any) -> bool:
    """Tell whether the value is a number in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def require_size(value: Any) -> None:
    """Raise TooLarge for a value with more than MOST_TEXT characters or MOST_VALUES values, before it is written."""
    text, values = 0, 0
    stack: list[Collection[Any]] = [(value,)]
    while stack:
        within = stack.pop()
        values += len(within)
        if values > MOST_VALUES:
            raise TooLarge(f"The value has more than {MOST_VALUES} values, or contains itself.")
        for each in within:
            kind = type(each)
            if kind is str or kind is bytes:
                text += len(each)
            elif kind is dict:
                stack.append(each.values())
                for key in each:
                    text += len(key) if type(key) is str else 0
            elif kind is list or kind is tuple:
                stack.append(each)
            elif kind not in _SCALARS:
                stack.append(_members(each))
        if text > MOST_TEXT:
            raise TooLarge(f"The value has more than {MOST_TEXT} characters.")


def _members(value: Any) -> list[Any]:
    """The values within an object of another class, as far as they can be found without asking the object."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return [str(value) if isinstance(value, str) else bytes(value)]
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, Collection) and not isinstance(value, type):
        return list(value)
    return list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []


def plain(value: Any) -> Any:
    """The value in dicts with string keys, lists, strings, numbers, booleans and None; a new one, sharing nothing.

    Moments are ISO 8601 texts; bytes are text where they are UTF-8, else base64; what is not finite is None; decimals,
    UUIDs, paths and addresses are texts, members of an Enum their values; any other object has to be a mapping, an
    iterable, a dataclass or a number. Raises NotJson.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise NotJson("The value is nested too deeply, or contains itself.") from None


def compact(value: Any) -> str:
    """The value as JSON without a space. Raises NotJson."""
    return _spelled(value, _COMPACT)


def indented(value: Any) -> str:
    """The value as JSON, indented by two. Raises NotJson."""
    return _spelled(value, _INDENTED)


def _spelled(value: Any, option: int) -> str:
    try:
        return orjson.dumps(value, default=_plain_object, option=option).decode()
    except (orjson.JSONEncodeError, RecursionError):
        pass
    # Big integers, lone surrogates, many levels: legal JSON that orjson will not write.
    spaced = option == _INDENTED
    spell = partial(
        json.dumps, plain(value), indent=2 if spaced else None, separators=(",", ": " if spaced else ":")
    )
    try:
        text = spell(ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return spell()
    except (RecursionError, ValueError):
        raise NotJson("The value is nested too deeply, or contains itself.") from None
    return text


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    return _plain(_plain_object(value))


def _plain_object(value: Any) -> Any:
    """One step from an object to what JSON knows; orjson and ``_plain`` take the next."""
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(raw).decode("ascii")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Iterable) and not hasattr(value, "__next__"):
        return list(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _TEXTS):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if not isinstance(value, type):
        if callable(isoformat := getattr(value, "isoformat", None)):
            return isoformat()
        # Paths and spans of time, by what they can do: nothing in these rooms knows files or clocks.
        if hasattr(value, "__fspath__") or hasattr(value, "total_seconds"):
            return str(value)
    # Its repr would be a success that tells where it lies in memory, and nothing else.
    raise NotJson(f"{type(value).__name__} cannot be written as JSON.")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)
