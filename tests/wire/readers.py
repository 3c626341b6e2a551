"""Readers of JSON as they are: which keys each takes for a name, and of several of them which."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

Match = Callable[[str], str]


def orbit(character: str) -> str:
    """The first of all characters that simple case folding makes one, as Go's unicode.SimpleFold walks them."""
    found, left = set[str](), {character}
    while left:
        found |= left
        left = {each for one in left for each in (one.lower(), one.upper()) if len(each) == 1} - found
    return min(found)


def runes(key: str) -> str:
    """Go's encoding/json."""
    return "".join(map(orbit, key))


def compact(key: str) -> str:
    """A reader that takes its names from a form without what nobody sees."""
    return "".join(each for each in key if unicodedata.category(each) not in ("Cf", "Cc", "Cs", "Zs", "Mn"))


MATCHES: tuple[Match, ...] = (
    str,
    runes,
    str.casefold,
    str.lower,
    str.upper,
    str.strip,
    lambda key: unicodedata.normalize("NFKC", key),
    lambda key: unicodedata.normalize("NFKC", key).casefold(),
    lambda key: unicodedata.normalize("NFD", key).lower(),
    lambda key: key.partition("\0")[0],
    lambda key: key.replace("\0", "").lower(),
    lambda key: key.replace("_", "").replace("-", "").lower(),
    lambda key: key.encode("utf-8", "ignore").decode(),
    lambda key: compact(key).casefold(),
)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def pairs(body: bytes) -> Any:
    """Objects as they are spelled: tuples of their members."""
    return json.loads(body, object_pairs_hook=tuple, parse_constant=_refuse)


def value(members: Any, name: str, match: Match, *, last: bool) -> Any:
    """What a reader finds under a name."""
    if not isinstance(members, tuple):
        return None
    found = [inner for key, inner in members if match(key) == match(name)]
    return found[-1 if last else 0] if found else None
