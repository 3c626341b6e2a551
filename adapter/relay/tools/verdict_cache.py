"""Verdicts on what scopes are shown: found once for all that saw the same first and see the same now."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamBroken
from adapter.relay.background import SingleFlight
from adapter.relay.last_used import LastUsed, Weight
from adapter.relay.stages import Call
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.catalogue_reader import CatalogueReader
from adapter.relay.tools.catalogue_store import weight
from adapter.relay.tools.tool_lists import Listed, ToolLists
from adapter.relay.turns import in_turns
from adapter.rules.tools.catalogue import Catalogue
from adapter.rules.tools.drift import Drift, as_data
from adapter.rules.tools.verdicts import CatalogueSnapshot, Verdict, judge_piecewise

VIEWS = 100_000
"""Scopes whose last verdict is remembered; one that was dropped is judged anew at its next call."""

VERDICTS = 256
"""Verdicts of one server that are kept."""

KEPT_BYTES = 128 << 20
"""Bytes of catalogues that views may hold, and verdicts: a server may offer each scope another."""

TRIES = (0.0, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Seconds of waiting before each try to judge by tools that do not change meanwhile."""

TOLD = 10_000
"""Pairs of catalogues of which it is remembered that the log was told."""

MARK = "tools seen"
"""The note of a list's request: when it was asked for."""


class _Key(NamedTuple):
    """The values that a verdict depends on."""

    baseline: str
    now: str
    hidden: frozenset[str]
    pages: frozenset[str]


class VerdictCache:
    """Judges the scopes of one server by their pins."""

    def __init__(
        self,
        baselines: Baselines,
        lists: ToolLists,
        catalogue_reader: CatalogueReader,
        log: FilteringBoundLogger,
    ) -> None:
        self._server = baselines.server
        self._pinning = baselines.pinning
        self._baselines = baselines
        self._lists = lists
        self._catalogue_reader = catalogue_reader
        self._log = log
        self._views = LastUsed[str, Verdict](VIEWS, KEPT_BYTES, _weight)
        self._verdicts = LastUsed[_Key, Verdict](VERDICTS, KEPT_BYTES, _weight)
        self._judging = SingleFlight[_Key, Verdict]()
        self._view_of = self._views.kept.get
        self._told: set[tuple[str, str]] = set()
        self.drifts = 0
        """How often a scope was found to be offered other tools than it saw first."""
        catalogue_reader.on_change.append(self._views.clear)

    def __repr__(self) -> str:
        return (
            f"<VerdictCache of {self._server!r}: {len(self._views)} scopes, {len(self._verdicts)} verdicts>"
        )

    def standing(self, scope_id: str) -> Verdict | None:
        """The verdict on a scope, unless something may have changed since."""
        return self._view_of(scope_id) if self._catalogue_reader.fresh else None

    def forget(self, scope_id: str) -> None:
        """The scope has ended."""
        self._views.drop(scope_id)

    # --- calls ------------------------------------------------------------------------------------------------

    async def verdict(self, call: Call) -> Verdict:
        """The verdict on what the upstream offers now, for the scope of this call.

        Raises UpstreamBroken if that cannot be known, and what the upstream raises.
        """
        catalogue_reader = self._catalogue_reader
        catalogue_reader.outlive()
        for pause in TRIES:
            if pause:
                await asyncio.sleep(pause)
            verdict = await self._kept(call)
            if verdict is not None:
                return verdict
            epoch = catalogue_reader.epoch
            verdict = await self._found(call)
            if epoch == catalogue_reader.epoch:
                self._views.put(call.scope.id, verdict)
                return await self._made_known(call, verdict)
        raise UpstreamBroken("The upstream server's tools change faster than they can be read; try again.")

    async def _found(self, call: Call) -> Verdict:
        seen = await self._catalogue_reader.seen(call)
        verdict = await self._judged(call, seen)
        if verdict.drift is None or self._catalogue_reader.was_seen_by(call.scope.id):
            return verdict
        # Others may be offered other tools; what counts is what this scope is.
        own = await self._catalogue_reader.own(call)
        if own.is_same(seen):
            return verdict
        verdict = await self._judged(call, own)
        if verdict.drift is None and not self._catalogue_reader.varies:
            self._catalogue_reader.varies = True
            await self._baselines.forget_others()
        return verdict

    async def _kept(self, call: Call) -> Verdict | None:
        """The verdict of before, unless an operator has accepted since what it was about."""
        verdict = self._view_of(call.scope.id)
        if (
            verdict is not None
            and verdict.drift is not None
            and await self._baselines.is_accepted(verdict.now)
        ):
            return None
        return verdict

    # --- lists ------------------------------------------------------------------------------------------------

    def asked(self, call: Call) -> None:
        """Note when a list was asked for: what comes may be older than what is known by then."""
        call.notes[MARK] = self._catalogue_reader.mark

    async def verdict_on(self, call: Call, listed: Listed, *, first: bool) -> Verdict:
        """Judge by the list itself where it is whole, else by all its pages. Raises as ``verdict`` does."""
        seen = await self._lists.snapshot(listed)
        if not first or listed.cursor is not None:
            return await self._verdict_on_page(call, seen)
        catalogue_reader = self._catalogue_reader
        current = call.notes.get(MARK) == catalogue_reader.mark
        if current:
            catalogue_reader.note(call.scope.id, seen)
        verdict = await self._kept(call)
        if verdict is not None and verdict.seen.is_same(seen):
            return verdict
        epoch = catalogue_reader.epoch
        verdict = await self._judged(call, seen)
        if current and epoch == catalogue_reader.epoch:
            self._views.put(call.scope.id, verdict)
        return await self._made_known(call, verdict)

    async def _verdict_on_page(self, call: Call, page: CatalogueSnapshot) -> Verdict:
        self._catalogue_reader.note_page(page)
        verdict = await self.verdict(call)
        if verdict.seen.covers(page):
            return verdict
        # The page is newer than what was read.
        self._catalogue_reader.changed()
        verdict = await self.verdict(call)
        if verdict.seen.covers(page):
            return verdict
        # It is other from one read to the next, so it counts as it came.
        return await self._made_known(call, await self._judged(call, await in_turns(verdict.with_page(page))))

    # --- pins -------------------------------------------------------------------------------------------------

    async def _judged(self, call: Call, seen: CatalogueSnapshot) -> Verdict:
        """The verdict on what this scope is shown, which is its pin if it has none."""
        baselines, now = self._baselines, seen.catalogue
        if self._pinning.mode == "off":
            return await self._verdict(now, seen)
        await baselines.saw(now)
        baseline = await baselines.of(call, now)
        return await self._verdict(baseline, seen)

    async def _made_known(self, call: Call, verdict: Verdict) -> Verdict:
        """The verdict, of which operators are told: by the log, and by what is remembered of the server whatever this
        scope started from.
        """
        seen, own = verdict.seen, verdict.drift is not None
        if verdict.found is not None:
            self._report((verdict.baseline, seen.catalogue.digest), verdict.found)
        if self._pinning.mode == "off" or (self._catalogue_reader.varies and not own):
            return verdict
        baseline = await self._baselines.of_server(seen.catalogue)
        found = (await self._verdict(baseline, seen)).drift
        if found is not None:
            await self._baselines.remember(call, baseline, seen.catalogue, found, own=own)
        return verdict

    async def _verdict(self, baseline: Catalogue, seen: CatalogueSnapshot) -> Verdict:
        key = _Key(baseline.digest, seen.catalogue.digest, seen.hidden, seen.pages)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = await self._judging.get(key, partial(self._judge, key, baseline, seen))
        return verdict

    async def _judge(self, key: _Key, baseline: Catalogue, seen: CatalogueSnapshot) -> Verdict:
        verdict = await in_turns(judge_piecewise(self._pinning, baseline, seen))
        self._verdicts.put(key, verdict)
        return verdict

    def _report(self, key: tuple[str, str], found: Drift) -> None:
        """One line for what became of one catalogue, however many scopes it concerns."""
        self.drifts += 1
        if key not in self._told and len(self._told) < TOLD:
            self._told.add(key)
            self._log.warning(
                "tools changed", server=self._server, mode=self._pinning.mode, drift=as_data(found)
            )


def _weight(verdict: Verdict) -> Weight:
    return weight(verdict.now)
