"""Verdicts on the catalogues that scopes are shown: found once for all scopes with equal baselines and catalogues.

Where calls wait for no verdict, their scopes are judged, and so pinned, beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamBroken
from adapter.relay.background import BackgroundTasks, SingleFlight, in_turns
from adapter.relay.stages import Call
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.catalogue_cache import KEPT_BYTES, SCOPES, verdict_weight
from adapter.relay.tools.catalogue_reader import CatalogueReader
from adapter.relay.tools.tool_lists import Listed, ToolLists
from adapter.rules.last_used import LastUsed
from adapter.rules.tools.catalogue import Catalogue, CatalogueSnapshot, Verdict, judge
from adapter.rules.tools.drift import Drift
from adapter.rules.tools.drift_report import as_data

VERDICTS = 256
"""Verdicts of one server that are kept by what they depend on."""

PAUSES = (0.0, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Seconds of waiting before each try to judge by tools that do not change meanwhile."""

LOGGED = 10_000
"""Pairs of catalogues of which it is remembered that the log has their drift."""

MARK = "tools seen"
"""The note of a list's request: when it was sent."""


PIN_AFTER = 0.25
"""Seconds after which scopes are pinned that have not ended: most short sessions have by then."""

MOST_WAITING = 4096
"""Scopes that wait at once."""

PINNED_AT_ONCE = 16
"""Scopes that are pinned together, so that one commit has their rows."""

RETRY = 30.0
"""Seconds until tools that could not be read are read again, where no call depends on them."""


class _Key(NamedTuple):
    """The values that a verdict depends on."""

    baseline: str
    now: str
    hidden: frozenset[str]
    pages: frozenset[str]


class JudgeRuntime(NamedTuple):
    """The surroundings of a judge. ``now`` is a clock that never goes back."""

    now: Callable[[], float]
    background: BackgroundTasks
    log: FilteringBoundLogger


@dataclass(eq=False, repr=False)
class CatalogueJudge:
    """Judges the scopes of one server by their pins. All that it learns is in the cache of the server's catalogue.

    A scope whose pin could matter to nobody but its own later requests is pinned a moment later, to the tools that were
    known at its first call, or that its first list showed. A stop of the adapter writes the pins that wait.

    ``on_drift`` is called for each drift that operators are told of.
    """

    baselines: Baselines
    lists: ToolLists
    reader: CatalogueReader
    runtime: JudgeRuntime
    on_drift: Callable[[], None]

    def __post_init__(self) -> None:
        self._cache = self.baselines.cache
        self._mode = self.baselines.pinning.mode
        self._is_off = self._mode == "off"
        self._now, self._background, self._log = self.runtime
        self._waiting: dict[str, tuple[Call, CatalogueSnapshot]] = {}
        self._viewing: set[str] = set()
        self._retry_at = float("-inf")
        self._at_work = self._is_stopping = False
        self._verdicts = SingleFlight[_Key, Verdict](LastUsed(VERDICTS, KEPT_BYTES, verdict_weight))
        self._logged: set[tuple[str, str]] = set()

    # --- calls ------------------------------------------------------------------------------------------------

    async def verdict(self, call: Call) -> Verdict:
        """The verdict on what the upstream offers now, for the scope of this call.

        Raises UpstreamBroken if that cannot be known, and what the upstream raises.
        """
        cache = self._cache
        if call.scope.id in self._waiting:
            await self._settle(call.scope.id)
        if not cache.is_confirmed:
            await self.baselines.confirm()
        cache.expire()
        for pause in PAUSES:
            if pause:
                await asyncio.sleep(pause)
            verdict = await self._last(call)
            if verdict is not None:
                return verdict
            epoch = cache.epoch
            verdict = await self._find(call)
            if epoch == cache.epoch:
                cache.keep_verdict(call.scope.id, verdict)
                return await self._publish(call, verdict)
        raise UpstreamBroken("The upstream server's tools change faster than they can be read; try again.")

    async def _find(self, call: Call) -> Verdict:
        snapshot = await self.reader.snapshot(call)
        verdict = await self._judge(call, snapshot)
        if verdict.drift is None or self._cache.is_from(call.scope.id):
            return verdict
        # Scopes may be offered different tools; what counts is the list of this one.
        own = await self.reader.own_snapshot(call)
        if own.is_same(snapshot):
            return verdict
        verdict = await self._judge(call, own)
        if verdict.drift is None and not self._cache.varies:
            self._cache.varies = True
            await self.baselines.forget_drift_of_others()
        return verdict

    async def _last(self, call: Call) -> Verdict | None:
        """The last verdict, unless an operator has accepted its catalogue since."""
        verdict = self._cache.last_verdict(call.scope.id)
        if verdict is None or verdict.drift is None:
            return verdict
        return None if await self.baselines.is_accepted(verdict.now) else verdict

    # --- lists ------------------------------------------------------------------------------------------------

    def mark(self, call: Call) -> None:
        """Note the moment of a list's request: the answer may be older than the catalogue that is known by then."""
        call.notes[MARK] = self._cache.mark

    async def verdict_on(self, call: Call, listed: Listed, *, first: bool) -> Verdict:
        """Judge by the list itself if it is whole, else by all its pages. Raises as ``verdict`` does."""
        if call.scope.id in self._waiting:
            await self._settle(call.scope.id)
        snapshot = await self.lists.snapshot(listed)
        if not first or listed.cursor is not None:
            return await self._verdict_on_page(call, snapshot)
        cache = self._cache
        if not cache.is_confirmed:
            await self.baselines.confirm()
        is_current = call.notes.get(MARK) == cache.mark
        if is_current:
            cache.note_list(call.scope.id, snapshot)
        verdict = await self._last(call)
        if verdict is not None and verdict.snapshot.is_same(snapshot):
            return verdict
        epoch = cache.epoch
        is_put_off = self._put_off(call, snapshot)
        verdict = await (
            self._compare(snapshot.catalogue, snapshot) if is_put_off else self._judge(call, snapshot)
        )
        if is_current and epoch == cache.epoch:
            cache.keep_verdict(call.scope.id, verdict)
        return verdict if is_put_off else await self._publish(call, verdict)

    async def _verdict_on_page(self, call: Call, page: CatalogueSnapshot) -> Verdict:
        self._cache.note_page(page)
        verdict = await self.verdict(call)
        if verdict.snapshot.covers(page):
            return verdict
        # The page is newer than what was read.
        self._cache.changed()
        verdict = await self.verdict(call)
        if verdict.snapshot.covers(page):
            return verdict
        # The list differs from one read to the next, so the page counts as it came.
        merged = await in_turns(verdict.with_page(page))
        return await self._publish(call, await self._judge(call, merged))

    # --- judging ----------------------------------------------------------------------------------------------

    async def _judge(self, call: Call, snapshot: CatalogueSnapshot) -> Verdict:
        """The verdict on the list that this scope is shown, which becomes its pin if it has none."""
        baselines, now = self.baselines, snapshot.catalogue
        if self._is_off:
            return await self._compare(now, snapshot)
        await baselines.note_seen(now)
        return await self._compare(await baselines.of(call, now), snapshot)

    async def _publish(self, call: Call, verdict: Verdict) -> Verdict:
        """Tell operators of the verdict: in the log, and as remembered drift from the server's own baseline."""
        snapshot, own = verdict.snapshot, verdict.drift is not None
        if verdict.full_drift is not None:
            self._report((verdict.baseline, snapshot.catalogue.digest), verdict.full_drift)
        if self._is_off or (self._cache.varies and not own):
            return verdict
        baseline = await self.baselines.of_server(snapshot.catalogue)
        drift = (await self._compare(baseline, snapshot)).drift
        if drift is not None:
            await self.baselines.remember(call, baseline, snapshot.catalogue, drift, own=own)
        return verdict

    async def _compare(self, baseline: Catalogue, snapshot: CatalogueSnapshot) -> Verdict:
        key = _Key(baseline.digest, snapshot.catalogue.digest, snapshot.hidden, snapshot.pages)
        return await self._verdicts.get(
            key, lambda: in_turns(judge(self.baselines.pinning, baseline, snapshot))
        )

    def _report(self, key: tuple[str, str], drift: Drift) -> None:
        """Write one line for the drift of one catalogue, however many scopes it concerns."""
        if key not in self._logged and len(self._logged) < LOGGED:
            self._logged.add(key)
            server = self.baselines.server
            self._log.warning("tools changed", server=server, mode=self._mode, drift=as_data(drift))
            self.on_drift()

    # --- pins that wait ---------------------------------------------------------------------------------------

    def note(self, call: Call) -> None:
        """Have the scope of a call be pinned to the tools of now, which are to be read first if nobody knows them."""
        scope_id = call.scope.id
        if scope_id in self._waiting or scope_id in self._viewing or self._now() < self._retry_at:
            return
        snapshot = self._cache.fresh_snapshot()
        may_wait = snapshot is not None and self.baselines.may_wait(call, snapshot.catalogue)
        if snapshot is None or not may_wait or len(self._waiting) >= MOST_WAITING:
            self._viewing.add(scope_id)
            self._background.run(self._view(call.without_request()))
            return
        self._wait(call, snapshot)

    def _put_off(self, call: Call, snapshot: CatalogueSnapshot) -> bool:
        """Have the scope of a first list be pinned to it a moment later; False where the pin may not wait, or where
        there may be one.

        Where a pin may be the reason to refuse a call it is written before a list leaves: a process that is killed
        forgets those that wait.
        """
        scope, pins = call.scope, self._cache.pins
        if self._mode != "warn" or not call.origin.is_new or scope.session_key is None:
            return False
        if scope.id in self._viewing or scope.id in pins or len(pins) >= SCOPES:
            return False
        if len(self._waiting) >= MOST_WAITING or not self.baselines.may_wait(call, snapshot.catalogue):
            return False
        self._wait(call, snapshot)
        return True

    def _wait(self, call: Call, snapshot: CatalogueSnapshot) -> None:
        self._waiting[call.scope.id] = call.without_request(), snapshot
        if not self._at_work:
            self._at_work = True
            self._background.run(self._settle_soon())

    async def _settle(self, scope_id: str) -> None:
        """Pin a scope now, if it waits for that and has not ended."""
        waiting = self._waiting.pop(scope_id, None)
        if waiting is not None and scope_id not in self._cache.ended:
            await self._view(*waiting)

    async def _settle_soon(self) -> None:
        try:
            await asyncio.sleep(PIN_AFTER)
        except asyncio.CancelledError:
            # No question to an upstream may delay the stop.
            self._is_stopping = True
            raise
        finally:
            try:
                # Most have ended by now, and none of them needs a task to find that out.
                for scope_id in [each for each in self._waiting if each in self._cache.ended]:
                    del self._waiting[scope_id]
                while self._waiting:
                    await asyncio.gather(*map(self._settle, [*islice(self._waiting, PINNED_AT_ONCE)]))
            finally:
                self._at_work = False

    async def _view(self, call: Call, first: CatalogueSnapshot | None = None) -> None:
        """Judge what a scope is offered, which it is pinned to unless it was offered something else at ``first``."""
        self._viewing.add(call.scope.id)
        try:
            if first is not None:
                await self._judge(call, first)
            if not self._is_stopping:
                await self.verdict(call)
        except AdapterError as error:
            self._retry_at = self._now() + RETRY
            self._log.info("tools could not be pinned yet", server=self.baselines.server, why=error.code)
        finally:
            self._viewing.discard(call.scope.id)
