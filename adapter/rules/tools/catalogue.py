"""The catalogue: all tools of a server as clients may see them, and what one digest says of it. Pure.

Of ten thousand tools each of these takes a tenth of a second, so each can be had piece by piece.
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

import orjson

from adapter.rules.tools.definitions import PinnedTool, Tool, pinned
from adapter.wire.piecewise import Piecewise, at_once

EACH = 256
"""Tools that one piece looks at."""

BUNDLE = 1 << 16
"""Bytes of definitions that one piece writes, but for the last of them."""

_PER_TOOL = 400
"""Bytes of memory that a tool takes beside its name and its definition."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """``digest`` (SHA-256, hex) is equal for two catalogues exactly when all their tools are, in any order.

    ``size`` is about what it takes of memory, in bytes.
    """

    digest: str
    tools: Mapping[str, PinnedTool]
    size: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"<Catalogue {self.digest[:12]}: {len(self.tools)} tools>"


def catalogue_of(tools: Iterable[Tool]) -> Catalogue:
    """The catalogue of these entries of a list.

    A name that stands there twice is one tool whose fingerprint has both, since which of them a client takes is
    not known.
    """
    return at_once(catalogue_piecewise(tools))


def catalogue_piecewise(tools: Iterable[Tool]) -> Piecewise[Catalogue]:
    """As ``catalogue_of``."""
    found: dict[str, PinnedTool] = {}
    for place, tool in enumerate(tools):
        entry, before = pinned(tool), found.get(tool.name)
        found[tool.name] = entry if before is None else _joined(before, entry)
        if place % EACH == 0:
            yield None
    return (yield from pinned_piecewise(found))


def of_pinned(tools: Mapping[str, PinnedTool]) -> Catalogue:
    """The catalogue of definitions that were pinned."""
    return at_once(pinned_piecewise(tools))


def pinned_piecewise(tools: Mapping[str, PinnedTool]) -> Piecewise[Catalogue]:
    """As ``of_pinned``."""
    digest = hashlib.sha256(b"[")
    size, separator = 0, b""
    names = yield from _sorted(tools)
    while some := list(islice(names, EACH)):
        entries = [(text, tools[_name(text)]) for text in some]
        rows = [(text, entry.known, entry.unknown) for text, entry in entries]
        digest.update(separator + orjson.dumps(rows)[1:-1])
        size += sum(_PER_TOOL + len(text) + len(entry.definition) for text, entry in entries)
        separator = b","
        yield None
    digest.update(b"]")
    return Catalogue(digest.hexdigest(), dict(tools), size)


def _sorted(names: Iterable[str]) -> Piecewise[Iterator[str]]:
    """All names as ``_sortable`` has them, in their order."""
    runs: list[list[str]] = []
    rest = iter(names)
    while run := sorted(map(_sortable, islice(rest, EACH * 4))):
        runs.append(run)
        yield None
    return heapq.merge(*runs)


# --- keeping --------------------------------------------------------------------------------------------------


def encode(catalogue: Catalogue) -> bytes:
    """The catalogue in few bytes; ``decode`` gives back an equal one."""
    return at_once(encode_piecewise(catalogue))


def encode_piecewise(catalogue: Catalogue) -> Piecewise[bytes]:
    """As ``encode``."""
    packer = zlib.compressobj()
    pieces = [packer.compress(orjson.dumps([catalogue.digest]))]
    for rows in _bundles(catalogue.tools):
        pieces.append(packer.compress(b"\n" + orjson.dumps(rows)))
        yield None
    pieces.append(packer.flush())
    return b"".join(pieces)


def decode(data: bytes) -> Catalogue:
    """The catalogue out of a row's value; ValueError if this version cannot read it."""
    return at_once(decode_piecewise(data))


def decode_piecewise(data: bytes) -> Piecewise[Catalogue]:
    """As ``decode``."""
    tools: dict[str, PinnedTool] = {}
    size = 0
    try:
        lines = _lines(data)
        digest, *whole = orjson.loads(next(lines))
        # Earlier versions wrote all rows behind the digest.
        for rows in chain(whole, map(orjson.loads, lines)):
            for name, known, unknown, definition in rows:
                tools[_name(name)] = PinnedTool(known, unknown, definition.encode("latin-1"))
                size += _PER_TOOL + len(name) + len(definition)
            yield None
    except (TypeError, AttributeError, StopIteration, zlib.error) as error:
        raise ValueError("not a catalogue") from error
    return Catalogue(digest, tools, size)


def _bundles(tools: Mapping[str, PinnedTool]) -> Iterator[list[tuple[str, str, str, str]]]:
    rows: list[tuple[str, str, str, str]] = []
    size = 0
    for name, entry in tools.items():
        rows.append((_sortable(name), entry.known, entry.unknown, entry.definition.decode("latin-1")))
        size += len(entry.definition)
        if len(rows) == EACH or size > BUNDLE:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _lines(data: bytes) -> Iterator[bytes]:
    """The lines of what was compressed. Raises zlib.error, also for what is not whole."""
    unpacker = zlib.decompressobj()
    line: list[bytes] = []
    rest = data
    while not unpacker.eof:
        got = unpacker.decompress(rest, BUNDLE)
        rest = unpacker.unconsumed_tail
        if not got and not unpacker.eof:
            raise zlib.error("it is not whole")
        first, *others = got.split(b"\n")
        line.append(first)
        for other in others:
            yield b"".join(line)
            line = [other]
    yield b"".join(line)


def _joined(first: PinnedTool, second: PinnedTool) -> PinnedTool:
    def both(one: str, other: str) -> str:
        return hashlib.sha256(f"{one}:{other}".encode("ascii")).hexdigest()

    return PinnedTool(both(first.known, second.known), both(first.unknown, second.unknown), second.definition)


def _sortable(name: str) -> str:
    # A name may hold a lone surrogate, which JSON in UTF-8 cannot.
    return name.encode("utf-8", "surrogatepass").decode("latin-1")


def _name(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogatepass")
