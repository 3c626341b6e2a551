"""Whether a JSON text can be read in more than one way: of a key that an object has twice readers differ."""

from __future__ import annotations

import json
from typing import Any

from adapter.errors import BadJson


def repeats(doc: bytes) -> bool:
    """Whether any object in a valid JSON text has a key twice. Raises BadJson for one too deep to be looked through."""
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
