"""Pins that are written a moment after the call that they are for: most short sessions have ended by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice

from adapter.relay.background import BackgroundTasks
from adapter.relay.stages import Call
from adapter.relay.tools.baselines import Baselines
from adapter.rules.tools.catalogue import CatalogueSnapshot

PIN_AFTER = 0.25
"""Seconds after which scopes are pinned that have not ended."""

MOST_WAITING = 4096
"""Scopes that wait at once."""

PINNED_AT_ONCE = 16
"""Scopes that are pinned together, so that one commit has their rows."""

PinScope = Callable[[Call, CatalogueSnapshot], Awaitable[None]]
"""Pins the scope of a call to what was offered then; handles its own failures."""


class DeferredPins:
    """The scopes that are still to be pinned to the tools that were known at their first call.

    Only where calls wait for no verdict, and where the pin could matter to nobody but this scope's own later requests.
    A stop of the adapter writes the pins that wait.
    """

    def __init__(self, pin: PinScope, baselines: Baselines, background: BackgroundTasks) -> None:
        self._pin = pin
        self._baselines = baselines
        self._background = background
        self._at_work = False
        self.stopping = False
        """Whether the adapter stops, which no question to an upstream may delay."""
        self.waiting: dict[str, tuple[Call, CatalogueSnapshot]] = {}
        """Calls with what was offered then, by scope id."""

    def __repr__(self) -> str:
        return f"<DeferredPins: {len(self.waiting)} scopes>"

    def add(self, call: Call) -> bool:
        """Have the scope of a call be pinned to the tools of now, unless it ends soon. False: it cannot wait."""
        snapshot = self._baselines.cache.fresh_snapshot()
        if snapshot is None or len(self.waiting) >= MOST_WAITING:
            return False
        if not self._baselines.may_wait(call, snapshot.catalogue):
            return False
        self.waiting[call.scope.id] = call.without_request(), snapshot
        if not self._at_work:
            self._at_work = True
            self._background.run(self._settle_soon())
        return True

    async def settle(self, scope_id: str) -> None:
        """Pin a scope now, if it waits for that and has not ended."""
        waiting = self.waiting.pop(scope_id, None)
        if waiting is not None and not self._baselines.cache.has_ended(scope_id):
            await self._pin(*waiting)

    def _forget_ended(self) -> None:
        """Forget the scopes that have ended: most have by now, and none of them needs a task to find that out."""
        ended = self._baselines.cache.ended
        for scope_id in [each for each in self.waiting if each in ended]:
            del self.waiting[scope_id]

    async def _settle_soon(self) -> None:
        try:
            await asyncio.sleep(PIN_AFTER)
        except asyncio.CancelledError:
            self.stopping = True
            raise
        finally:
            try:
                self._forget_ended()
                while self.waiting:
                    await asyncio.gather(*map(self.settle, [*islice(self.waiting, PINNED_AT_ONCE)]))
            finally:
                self._at_work = False
