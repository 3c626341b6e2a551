"""The catalogue: all tools of a server as clients may see them, and what one digest says of it. Pure."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from adapter.rules.tools import PinnedTool, Tool, pinned


@dataclass(frozen=True, slots=True)
class Catalogue:
    """``digest`` (SHA-256, hex) is equal for two catalogues exactly when all their tools are, in any order."""

    digest: str
    tools: Mapping[str, PinnedTool]

    def __repr__(self) -> str:
        return f"<Catalogue {self.digest[:12]}: {len(self.tools)} tools>"


def catalogue_of(tools: Iterable[Tool]) -> Catalogue:
    """The catalogue of these entries of a list.

    A name that stands there twice is one tool whose fingerprint has both, since which of them a client takes is
    not known.
    """
    found: dict[str, PinnedTool] = {}
    for tool in tools:
        entry, before = pinned(tool), found.get(tool.name)
        found[tool.name] = entry if before is None else _joined(before, entry)
    return of_pinned(found)


def of_pinned(tools: Mapping[str, PinnedTool]) -> Catalogue:
    """The catalogue of definitions that were pinned."""
    rows = sorted((_sortable(name), entry.known, entry.unknown) for name, entry in tools.items())
    return Catalogue(hashlib.sha256(orjson.dumps(rows)).hexdigest(), dict(tools))


def encode(catalogue: Catalogue) -> bytes:
    """The catalogue in few bytes; ``decode`` gives back an equal one."""
    rows = [
        (_sortable(name), entry.known, entry.unknown, entry.definition.decode("latin-1"))
        for name, entry in catalogue.tools.items()
    ]
    return zlib.compress(orjson.dumps([catalogue.digest, rows]))


def decode(data: bytes) -> Catalogue:
    """The catalogue out of a row's value; ValueError if this version cannot read it."""
    try:
        digest, rows = orjson.loads(zlib.decompress(data))
        tools = {
            _name(name): PinnedTool(known, unknown, definition.encode("latin-1"))
            for name, known, unknown, definition in rows
        }
    except (TypeError, AttributeError, zlib.error) as error:
        raise ValueError("not a catalogue") from error
    return Catalogue(digest, tools)


def _joined(first: PinnedTool, second: PinnedTool) -> PinnedTool:
    def both(one: str, other: str) -> str:
        return hashlib.sha256(f"{one}:{other}".encode("ascii")).hexdigest()

    return PinnedTool(both(first.known, second.known), both(first.unknown, second.unknown), second.definition)


def _sortable(name: str) -> str:
    # A name may hold a lone surrogate, which JSON in UTF-8 cannot.
    return name.encode("utf-8", "surrogatepass").decode("latin-1")


def _name(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogatepass")
