"""Verdicts on what scopes are shown: found once for all that saw the same first and see the same now."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamBroken
from adapter.relay.listing import Listed
from adapter.relay.lookout import Lookout
from adapter.relay.pins import Pins
from adapter.relay.stages import Call
from adapter.rules.catalogue import Catalogue
from adapter.rules.drift import Drift, as_data
from adapter.rules.verdicts import Pinning, Sighting, Verdict, judge

VIEWS = 100_000
"""Scopes whose last verdict is remembered; one that was dropped is judged anew at its next call."""

VERDICTS = 256
"""Verdicts of one server that are kept."""

TRIES = (0.0, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Seconds of waiting before each try to judge by tools that do not change meanwhile."""

TOLD = 10_000
"""Pairs of catalogues of which it is remembered that the log was told."""

MARK = "tools seen"
"""The note of a list's request: when it was asked for."""


class Judging:
    """Judges the scopes of one server by their pins."""

    def __init__(
        self, server: str, pinning: Pinning, pins: Pins, lookout: Lookout, log: FilteringBoundLogger
    ) -> None:
        self._server = server
        self._pinning = pinning
        self._pins = pins
        self._lookout = lookout
        self._log = log
        self._views: dict[str, Verdict] = {}
        self._verdicts: OrderedDict[object, Verdict] = OrderedDict()
        self._told: set[tuple[str, str]] = set()
        self.drifts = 0
        """How often a scope was found to be offered other tools than it saw first."""
        lookout.on_change.append(self._views.clear)

    def __repr__(self) -> str:
        return f"<Judging of {self._server!r}: {len(self._views)} scopes, {len(self._verdicts)} verdicts>"

    def standing(self, scope_id: str) -> Verdict | None:
        """The verdict on a scope, unless something may have changed since."""
        return self._views.get(scope_id) if self._lookout.fresh else None

    def forget(self, scope_id: str) -> None:
        """The scope has ended."""
        self._views.pop(scope_id, None)

    # --- calls ------------------------------------------------------------------------------------------------

    async def verdict(self, call: Call) -> Verdict:
        """How the scope of this call stands to what the upstream offers now.

        Raises UpstreamBroken where that cannot be known, and what the upstream raises.
        """
        lookout = self._lookout
        lookout.outlive()
        for pause in TRIES:
            if pause:
                await asyncio.sleep(pause)
            verdict = await self._kept(call)
            if verdict is not None:
                return verdict
            epoch = lookout.epoch
            verdict = await self._found(call)
            if epoch == lookout.epoch:
                self._keep(call, verdict)
                return verdict
        raise UpstreamBroken("The upstream server's tools change faster than they can be read; try again.")

    async def _found(self, call: Call) -> Verdict:
        seen = await self._lookout.seen(call)
        verdict = await self._judged(call, seen)
        if verdict.drift is None or self._lookout.was_seen_by(call.scope.id):
            return verdict
        # Others may be offered other tools; what counts is what this scope is.
        own = await self._lookout.own(call)
        if own.is_same(seen):
            return verdict
        verdict = await self._judged(call, own)
        if verdict.drift is None:
            self._lookout.varies = True
        return verdict

    async def _kept(self, call: Call) -> Verdict | None:
        """The verdict of before, unless an operator has accepted since what it was about."""
        verdict = self._views.get(call.scope.id)
        if verdict is not None and verdict.drift is not None and self._pinning.lock is None:
            accepted = await self._pins.look_up(self._server)
            if accepted is not None and accepted.digest == verdict.now.digest:
                return None
        return verdict

    def _keep(self, call: Call, verdict: Verdict) -> None:
        self._views[call.scope.id] = verdict
        if len(self._views) > VIEWS:
            del self._views[next(iter(self._views))]

    # --- lists ------------------------------------------------------------------------------------------------

    def asked(self, call: Call) -> None:
        """Note when a list was asked for: what comes may be older than what is known by then."""
        call.notes[MARK] = self._lookout.mark

    async def verdict_on(self, call: Call, listed: Listed, *, first: bool) -> Verdict:
        """Judge by the list itself where it is whole, else by all its pages. Raises as ``verdict`` does."""
        if not first or listed.cursor is not None:
            return await self._verdict_on_page(call, listed.sighting)
        lookout, seen = self._lookout, listed.sighting
        current = call.notes.get(MARK) == lookout.mark
        if current:
            lookout.note(call.scope.id, seen)
        verdict = await self._kept(call)
        if verdict is not None and verdict.seen.is_same(seen):
            return verdict
        epoch = lookout.epoch
        verdict = await self._judged(call, seen)
        if current and epoch == lookout.epoch:
            self._keep(call, verdict)
        return verdict

    async def _verdict_on_page(self, call: Call, page: Sighting) -> Verdict:
        verdict = await self.verdict(call)
        if verdict.covers(page):
            return verdict
        # The page is newer than what was read.
        self._lookout.changed()
        verdict = await self.verdict(call)
        if verdict.covers(page):
            return verdict
        # It is other from one read to the next, so it counts as it came.
        return await self._judged(call, verdict.with_page(page))

    # --- pins -------------------------------------------------------------------------------------------------

    async def _judged(self, call: Call, seen: Sighting) -> Verdict:
        """The verdict on what this scope is shown, which is its pin if it has none."""
        baseline = seen.catalogue
        if self._pinning.mode != "off":
            await self._pins.saw(self._server, seen.catalogue)
            baseline = self._pinning.lock or await self._pinned(call, seen.catalogue)
        key = baseline.digest, seen.catalogue.digest, seen.hidden, seen.pages
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = judge(self._pinning, baseline, seen)
            if len(self._verdicts) > VERDICTS:
                self._verdicts.popitem(last=False)
        self._verdicts.move_to_end(key)
        if verdict.found is not None:
            self._report((baseline.digest, seen.catalogue.digest), verdict.found)
        return verdict

    async def _pinned(self, call: Call, now: Catalogue) -> Catalogue:
        """What the scope starts from; ``now``, if that is now."""
        pin = await self._pins.pin(self._server, call.scope.id, now, call.scope.owner)
        if pin.digest != now.digest:
            # An operator may have had a word in this very moment.
            accepted = await self._pins.look_up(self._server)
            if accepted is not None and (accepted.since >= pin.since or accepted.digest == now.digest):
                pin = accepted
        if pin.digest == now.digest:
            return now
        known = await self._pins.catalogue(pin.digest)
        # What cannot be compared is not what it was.
        return known if known is not None else Catalogue(pin.digest, {})

    def _report(self, key: tuple[str, str], found: Drift) -> None:
        """One line for what became of one catalogue, however many scopes it concerns."""
        self.drifts += 1
        if key not in self._told and len(self._told) < TOLD:
            self._told.add(key)
            self._log.warning(
                "tools changed", server=self._server, mode=self._pinning.mode, drift=as_data(found)
            )
