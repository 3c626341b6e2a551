"""The head of a scope's files: what replicas that share a store compare before they change any of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ScopeHead:
    """What is counted of a scope: ``size`` is the sum of its files in bytes.

    ``holders`` are the replicas that use files of it just now, each with the keys of the files without the scope.
    """

    size: int = 0
    uploads: int = 0
    artifacts: int = 0
    holders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True where the scope has no file and nobody uses any."""
        return not (self.uploads or self.artifacts or self.holders)


def encode(head: ScopeHead) -> bytes:
    """The head as one JSON object; ``decode`` gives back an equal one."""
    return orjson.dumps(
        {
            "format": _FORMAT,
            "size": head.size,
            "uploads": head.uploads,
            "artifacts": head.artifacts,
            "holders": head.holders,
        }
    )


def decode(data: bytes) -> ScopeHead:
    """The head out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("a head of another format")
        fields.pop("writer", None)  # of an earlier version
        return ScopeHead(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a head of a scope's files") from error
