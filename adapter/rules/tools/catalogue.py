"""The catalogue: all tools of a server as clients may see them, its digest, and the verdict on it by a baseline. Pure.

With ten thousand tools each of these takes a tenth of a second, so each can be had piece by piece.
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Literal

import orjson

from adapter.rules.text.unicode import has_no_reading, reading
from adapter.rules.tools.definitions import EarlierForms, PinnedTool, Tool, no_earlier_forms, pinned, restated
from adapter.rules.tools.drift import Drift, drift_piecewise
from adapter.wire.piecewise import LARGE, Piecewise, at_once, one_piece

EACH = 256
"""Tools that one piece looks at."""

BUNDLE = 1 << 16
"""Bytes of definitions that one piece writes, but for the last of them."""

_PER_TOOL = 400
"""Bytes of memory that a tool takes beside its name and its definition."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tools of a server. ``digest`` (SHA-256, hex) is equal for two catalogues exactly when all their tools are, in
    any order. ``size`` is about the memory that it takes, in bytes.
    """

    digest: str
    tools: Mapping[str, PinnedTool]
    size: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"<Catalogue {self.digest[:12]}: {len(self.tools)} tools>"


def catalogue_of(tools: Iterable[Tool]) -> Catalogue:
    """The catalogue of these entries of a list.

    Two entries of one name are one tool whose fingerprint has both, since clients differ in which of them they take.
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


def read_as(catalogue: Catalogue, other: Catalogue, earlier: EarlierForms) -> Piecewise[Catalogue]:
    """The catalogue as ``restated`` has its tools; ``other`` itself if they are the same, else under its own digest."""
    if catalogue.digest == other.digest:
        return other
    tools = yield from restated(catalogue.tools, other.tools, earlier)
    return other if tools == other.tools else replace(catalogue, tools=tools)


# --- keeping --------------------------------------------------------------------------------------------------


def encode(catalogue: Catalogue) -> Piecewise[bytes]:
    """The catalogue in few bytes; ``decode`` gives back an equal one."""
    packer = zlib.compressobj()
    pieces = [packer.compress(orjson.dumps([catalogue.digest]))]
    for rows in _bundles(catalogue.tools):
        pieces.append(packer.compress(b"\n" + orjson.dumps(rows)))
        yield None
    pieces.append(packer.flush())
    return b"".join(pieces)


def decode(data: bytes) -> Piecewise[Catalogue]:
    """The catalogue out of a row's value; ValueError if this version cannot read it."""
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
    """The lines of compressed data. Raises zlib.error, also for data that was cut off."""
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


Mode = Literal["off", "warn", "block"]


@dataclass(frozen=True, slots=True)
class PinRule:
    """``tool_definition_pinning`` of one server. ``lock`` is the baseline that a file sets for every scope.

    ``earlier`` knows pins of earlier versions.
    """

    mode: Mode = "warn"
    subset: bool = False
    invalidate: bool = True
    baseline: Literal["session", "server"] = "session"
    lock: Catalogue | None = None
    earlier: EarlierForms = no_earlier_forms


@dataclass(frozen=True)
class CatalogueSnapshot:
    """A whole list as its client may see it.

    ``hidden`` are the readings of tools that policy hides for their definitions. ``pages`` are the digests of the pages
    that the list came on, ``tools`` its entries.
    """

    catalogue: Catalogue
    hidden: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()
    tools: Sequence[Tool] = field(default=(), compare=False, repr=False)

    @cached_property
    def definitions(self) -> Mapping[str, bytes]:
        """The definitions as clients see them, by name; of several tools of one name the last, as in the catalogue."""
        return {tool.name: tool.raw for tool in self.tools}

    def is_same(self, other: CatalogueSnapshot) -> bool:
        """Tell whether both show the same tools and hide the same tools."""
        return self.catalogue.digest == other.catalogue.digest and self.hidden == other.hidden

    def covers(self, page: CatalogueSnapshot) -> bool:
        """Tell whether all tools of the page are also on this list."""
        # A name that stands on two pages is one tool in the catalogue, and the same on none of them.
        if self.pages >= page.pages:
            return True
        tools = self.catalogue.tools
        return page.hidden <= self.hidden and all(
            tools.get(name) == tool for name, tool in page.catalogue.tools.items()
        )


@dataclass(frozen=True, eq=False, slots=True)
class Verdict:
    """The judgement of the tools of ``now`` for one scope.

    ``full_drift`` is every difference from what the scope saw first; ``drift`` is the same if a model is told
    anything else than before. ``allowed`` are the names that may be called. ``baseline`` is the digest of what the
    scope saw first.
    """

    snapshot: CatalogueSnapshot
    full_drift: Drift | None
    drift: Drift | None
    allowed: Set[str]
    baseline: str = ""
    _suspect: frozenset[str] = field(default=frozenset(), repr=False)
    _only_allowed: bool = field(default=False, repr=False)

    @property
    def now(self) -> Catalogue:
        return self.snapshot.catalogue

    def with_page(self, page: CatalogueSnapshot) -> Piecewise[CatalogueSnapshot]:
        """The tools that were judged, with the tools of the page in place of those of the same names."""
        tools = yield from pinned_piecewise({**self.now.tools, **page.catalogue.tools})
        entries = (*self.snapshot.tools, *page.tools)
        return CatalogueSnapshot(tools, self.snapshot.hidden | page.hidden, tools=entries)

    def hides(self, name: str) -> bool:
        """Tell whether policy hides a tool that a server might understand by this name."""
        return bool(self.snapshot.hidden) and (has_no_reading(name) or reading(name) in self.snapshot.hidden)

    def bars(self, name: str) -> bool:
        """Tell whether drift, or a missing pin, stops a call of this name."""
        if name in self.allowed:
            return False
        if self._only_allowed or not self._suspect:
            return self._only_allowed
        return has_no_reading(name) or reading(name) in self._suspect


def judge(pinning: PinRule, baseline: Catalogue, snapshot: CatalogueSnapshot) -> Piecewise[Verdict]:
    """The verdict on the tools of now for a scope that saw ``baseline`` first."""
    now = snapshot.catalogue
    full_drift = None
    if baseline.digest != now.digest:
        before = yield from restated(baseline.tools, now.tools, pinning.earlier)
        full_drift = yield from drift_piecewise(before, now.tools)
    # Operators are told of other keys alone, but they are no reason to keep a model from what it knows.
    drift = None if full_drift is None or full_drift.is_of_other_keys_only else full_drift
    blocks = pinning.mode == "block"
    allowed: Set[str] = now.tools.keys()
    suspect: frozenset[str] = frozenset()
    if blocks and drift is not None:
        allowed = frozenset(allowed - drift.unsettled)
        gone = (*drift.removed, *(rename.old for rename in drift.renamed))
        suspect = frozenset((yield from _readings((*drift.unsettled, *gone))).values())
    if snapshot.hidden:
        readings = yield from _readings(allowed)
        allowed = frozenset(name for name, read in readings.items() if read not in snapshot.hidden)
    only_allowed = blocks and pinning.subset
    return Verdict(snapshot, full_drift, drift, allowed, baseline.digest, suspect, only_allowed)


def _readings(names: Iterable[str]) -> Piecewise[dict[str, str]]:
    found: dict[str, str] = {}
    for place, name in enumerate(names):
        if len(name) > LARGE:
            found[name] = yield from one_piece(partial(reading, name), len(name))
        else:
            found[name] = reading(name)
        if place % EACH == 0:
            yield None
    return found
