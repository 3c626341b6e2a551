"""Values that a driver returns, as JSON values."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any


def plain(value: Any) -> Any:
    """``value`` in the terms of JSON; mappings, lists, tuples and sets are gone through.

    Bytes become text where they are UTF-8 and base64 where they are not; dates and times ISO 8601; a span of time
    ``[-]HH:MM:SS``; a number that JSON cannot spell (NaN, Infinity) its name. Everything else becomes its text: a
    decimal keeps all its digits, a UUID its hyphens.
    """
    match value:
        case None | bool():
            return value
        # Drivers have subclasses of numbers and texts, which a strict serializer refuses.
        case int():
            return int(value)
        case str():
            return str(value)
        case float():
            return float(value) if math.isfinite(value) else _NAMES[str(float(value))]
        case bytes() | bytearray() | memoryview():
            return _text(bytes(value))
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _span(value)
        case Mapping():
            return {_key(key): plain(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(member) for member in value]
        case _:
            return str(value)


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _key(key: Any) -> str:
    plainly = plain(key)
    return plainly if isinstance(plainly, str) else str(plainly)


def _span(value: timedelta) -> str:
    seconds, sign = abs(value), "-" if value < timedelta(0) else ""
    minutes, rest = divmod(seconds.days * 86_400 + seconds.seconds, 60)
    fraction = f".{seconds.microseconds:06d}" if seconds.microseconds else ""
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}{fraction}"
