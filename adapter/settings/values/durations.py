"""Spans of time as people write them: ``250ms``, ``10s``, ``2m``, ``1h``."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: object) -> object:
    """The seconds that a text like ``2m`` or ``250ms`` names; anything but text is left as it is.

    Raises ValueError for text that is no duration.
    """
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError("must be seconds, or text such as 250ms, 10s or 2m")
    return float(found[1]) * _UNITS[found[2] or "s"]
