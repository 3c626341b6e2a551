"""Byte sizes as people write them: ``10Mi`` is 10 · 1024², ``5M`` and ``5MB`` are 5 · 1000²."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*+(\d++)\s*+(?:([kmgt])(i?))?b?\s*+", re.IGNORECASE)
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(value: object) -> object:
    """The number of bytes that a text like ``10Mi`` or ``5 MB`` names; anything but text is left as it is.

    Raises ValueError for text that is no byte size.
    """
    if isinstance(value, bool):
        raise ValueError("must be a byte size such as 10Mi, 5MB or 1048576")
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None:
        raise ValueError("must be a byte size such as 10Mi, 5MB or 1048576")
    digits, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(digits) * (base ** _POWER[unit.lower()] if unit else 1)
