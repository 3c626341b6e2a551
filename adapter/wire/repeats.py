"""JSON texts that can be read in more than one way: readers differ on a key that an object has twice."""

from __future__ import annotations

import json
from typing import Any

from adapter.errors import BadJson
from adapter.wire.envelope import parse


def repeats(doc: bytes) -> bool:
    """Tell whether any object in a valid JSON text has a key twice. Raises BadJson for one that is too deep."""
    if _surely_not(doc):
        return False
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len({key for key, _ in pairs}) < len(pairs)

    # Numbers do not matter, and int() refuses those of thousands of digits.
    decoder = json.JSONDecoder(object_pairs_hook=look, parse_int=len, parse_float=len)
    try:
        decoder.decode(doc.decode())
    except RecursionError:
        raise BadJson from None
    return repeated


def _surely_not(doc: bytes) -> bool:
    """True only if no key repeats; counting takes a third of the time of a look at every pair.

    Without a backslash every quote begins or ends a text, and of those a key that repeats is missing in the value.
    """
    if b"\\" in doc:
        return False
    texts = 0
    left = [parse(doc)]
    for value in left:
        if isinstance(value, str):
            texts += 1
        elif isinstance(value, dict):
            texts += len(value)
            left += value.values()
        elif isinstance(value, list):
            left += value
    return doc.count(b'"') == 2 * texts
