"""What a scope may use of the tools of now, judged by those it saw first. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal

from adapter.rules.catalogue import Catalogue, of_pinned
from adapter.rules.drift import Drift, drift
from adapter.rules.unicode import has_no_reading, reading


@dataclass(frozen=True, slots=True)
class Pinning:
    """``tool_definition_pinning`` of one server. ``lock`` is the baseline that a file sets for every scope."""

    mode: Literal["off", "warn", "block"] = "warn"
    subset: bool = False
    invalidate: bool = True
    lock: Catalogue | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """A whole list as its client may see it.

    ``hidden`` are the readings of tools that policy hides for what they say. ``pages`` are the digests of the pages
    that the list came on.
    """

    catalogue: Catalogue
    hidden: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()

    def is_same(self, other: Sighting) -> bool:
        """Whether both show, and hide, the same tools."""
        return self.catalogue.digest == other.catalogue.digest and self.hidden == other.hidden


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a scope stands to the tools of ``now``.

    ``found`` is all that differs from what it saw first, ``drift`` the same if a model is told anything else than
    before. ``allowed`` are the names that may be called.
    """

    seen: Sighting
    found: Drift | None
    drift: Drift | None
    allowed: Set[str]
    _suspect: frozenset[str] = field(default=frozenset(), repr=False)
    _only_allowed: bool = field(default=False, repr=False)

    @property
    def now(self) -> Catalogue:
        return self.seen.catalogue

    def covers(self, page: Sighting) -> bool:
        """Whether all that is on the page was judged."""
        # A name that stands on two pages is one tool in the catalogue, and the same on none of them.
        if self.seen.pages >= page.pages:
            return True
        tools = self.now.tools
        return page.hidden <= self.seen.hidden and all(
            tools.get(name) == tool for name, tool in page.catalogue.tools.items()
        )

    def with_page(self, page: Sighting) -> Sighting:
        """What was judged with what is on the page in its place."""
        tools = of_pinned({**self.now.tools, **page.catalogue.tools})
        return Sighting(tools, self.seen.hidden | page.hidden)

    def hides(self, name: str) -> bool:
        """Whether policy hides what a server might take this name for."""
        return bool(self.seen.hidden) and (has_no_reading(name) or reading(name) in self.seen.hidden)

    def bars(self, name: str) -> bool:
        """Whether drift, or the want of a pin, keeps a call of this name from going on."""
        if name in self.allowed:
            return False
        if self._only_allowed or not self._suspect:
            return self._only_allowed
        return has_no_reading(name) or reading(name) in self._suspect


def judge(pinning: Pinning, baseline: Catalogue, seen: Sighting) -> Verdict:
    """The verdict on what was seen now by who saw ``baseline`` first."""
    now = seen.catalogue
    found = None if baseline.digest == now.digest else drift(baseline.tools, now.tools)
    # What only other keys tell apart is told, but no reason to keep a model from what it knows.
    matters = None if found is None or found.is_of_other_keys_only else found
    blocks = pinning.mode == "block"
    allowed: Set[str] = now.tools.keys()
    suspect: frozenset[str] = frozenset()
    if blocks and matters is not None:
        allowed = frozenset(allowed - matters.unsettled)
        gone = (*matters.removed, *(rename.old for rename in matters.renamed))
        suspect = frozenset(map(reading, (*matters.unsettled, *gone)))
    if seen.hidden:
        allowed = frozenset(name for name in allowed if reading(name) not in seen.hidden)
    return Verdict(seen, found, matters, allowed, suspect, blocks and pinning.subset)
