"""The head of a scope's files: what replicas that share a store compare before they change any of them. Pure.

It says which replicas use files of the scope just now, each with the keys of the files without the scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import orjson

Holders: TypeAlias = Mapping[str, Sequence[str]]


def encode(holders: Holders) -> bytes:
    """The head as one JSON object; ``decode`` gives back equal holders."""
    return orjson.dumps({"format": 1, "holders": holders})


def decode(data: bytes) -> Holders:
    """The holders out of a row's value; ValueError if this version cannot read it."""
    match orjson.loads(data):
        case {"format": 1, "holders": dict(holders)}:
            return holders
    raise ValueError("not a head of a scope's files")
