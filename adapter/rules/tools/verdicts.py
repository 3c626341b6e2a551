"""The present tools that a scope may use, judged by the tools that it saw first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from adapter.rules.text.unicode import has_no_reading, reading
from adapter.rules.tools.catalogue import Catalogue, pinned_piecewise
from adapter.rules.tools.drift import Drift, drift_piecewise
from adapter.wire.piecewise import LARGE, Piecewise, at_once, one_piece

_EACH = 512


Mode = Literal["off", "warn", "block"]


@dataclass(frozen=True, slots=True)
class Pinning:
    """``tool_definition_pinning`` of one server. ``lock`` is the baseline that a file sets for every scope."""

    mode: Mode = "warn"
    subset: bool = False
    invalidate: bool = True
    baseline: Literal["session", "server"] = "session"
    lock: Catalogue | None = None


@dataclass(frozen=True, slots=True)
class CatalogueSnapshot:
    """A whole list as its client may see it.

    ``hidden`` are the readings of tools that policy hides for what they say. ``pages`` are the digests of the pages
    that the list came on.
    """

    catalogue: Catalogue
    hidden: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()

    def is_same(self, other: CatalogueSnapshot) -> bool:
        """Tell whether both show the same tools and hide the same tools."""
        return self.catalogue.digest == other.catalogue.digest and self.hidden == other.hidden

    def covers(self, page: CatalogueSnapshot) -> bool:
        """Tell whether everything on the page is also on this list."""
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
        return CatalogueSnapshot(tools, self.snapshot.hidden | page.hidden)

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


def judge(pinning: Pinning, baseline: Catalogue, snapshot: CatalogueSnapshot) -> Verdict:
    """The verdict on the tools of now for a scope that saw ``baseline`` first."""
    return at_once(judge_piecewise(pinning, baseline, snapshot))


def judge_piecewise(pinning: Pinning, baseline: Catalogue, snapshot: CatalogueSnapshot) -> Piecewise[Verdict]:
    """As ``judge``."""
    now = snapshot.catalogue
    full_drift = None
    if baseline.digest != now.digest:
        full_drift = yield from drift_piecewise(baseline.tools, now.tools)
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
        if place % _EACH == 0:
            yield None
    return found
