"""The stage that announces results that a successful call made stale: to caches, clients, observers, and to the
model. It never makes a call fail.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.rules.presenters.state_sync import Invalidation, StateSync
from adapter.rules.results.outcomes import text_block

Purge = Callable[[Invalidation], object]
"""Forgets what is kept of the results of tools that went stale."""
Observe = Callable[[Mapping[str, Any]], Any]
"""The user's own function; what it gives is awaited where it can be."""


class Listeners(NamedTuple):
    """The listeners to stale results, in this order: caches are purged before anybody can ask again."""

    purge: Purge
    observe: Observe | None = None


@dataclass(frozen=True, slots=True)
class StateSyncStage:
    """The stage of ``state_sync``. ``patience`` is the most seconds that caches and an observer may each delay the
    call; ``clock`` gives Unix seconds.

    No text of a tool can read like the adapter's own sentence, whether the call succeeds or fails.
    """

    server: str
    tool: str
    sync: StateSync
    listeners: Listeners = field(repr=False)
    log: FilteringBoundLogger = field(repr=False)
    clock: Callable[[], float] = field(default=time.time, repr=False, kw_only=True)
    patience: float = field(default=5.0, kw_only=True)

    @property
    def detail(self) -> str:
        """The text in a plan that says what a call makes stale."""
        found = self.sync.invalidation(self.server, self.tool)
        return f"invalidates {'nothing' if found is None else ', '.join(map(str, found.patterns))}"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. What a stage answered in the tool's stead changes nothing, so it makes nothing stale."""
        try:
            outcome = await forward(call)
        except StageFailed as failed:
            failed.text = self.sync.decorated([text_block(failed.text)], None)[0]["text"]
            raise
        call.time.at = "state_sync"
        ran = outcome.succeeded and not outcome.final
        invalidation = self.sync.invalidation(self.server, self.tool) if ran else None
        if invalidation is not None:
            await self._announce(call, invalidation)
        return self._said(outcome, invalidation)

    def _said(self, outcome: Outcome, invalidation: Invalidation | None) -> Outcome:
        """Return the outcome with the adapter's block and no other such block; the same object if nothing changes."""
        content = outcome.result.get("content")
        if not isinstance(content, list):
            if invalidation is None:
                return outcome
            content = []
        decorated = self.sync.decorated(content, invalidation)
        if invalidation is None and all(map(operator.is_, decorated, content)):
            return outcome
        return outcome.with_content(decorated)

    # --- everybody else ---------------------------------------------------------------------------------------

    async def _announce(self, call: PlannedCall, invalidation: Invalidation) -> None:
        purge, observe = self.listeners
        await self._told("the caches", call, lambda: purge(invalidation))
        await self._told("the client", call, lambda: _notify(call, invalidation))
        if observe is not None:
            await self._told("the observer", call, lambda: observe(self._event(invalidation)))

    async def _told(self, whom: str, call: PlannedCall, tell: Callable[[], Any]) -> None:
        try:
            notice = tell()
            if inspect.isawaitable(notice):
                await _within(self._patience(call), notice)
        except (Exception, SystemExit) as error:
            # The tool has done its work; that somebody could not be told of it does not undo that.
            log = self.log.bind(server=self.server, tool=self.tool)
            log.warning("what went stale could not be told", whom=whom, why=type(error).__name__)
            log.debug("where telling failed", exc_info=True)

    def _patience(self, call: PlannedCall) -> float:
        """Return the most seconds that a listener may delay the call, within the call's own time."""
        until = call.time.until
        return self.patience if until is None else min(self.patience, max(0.0, until - time.monotonic()))

    def _event(self, invalidation: Invalidation) -> dict[str, Any]:
        moment = datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds")
        return {
            "causedBy": invalidation.cause,
            "patterns": list(map(str, invalidation.patterns)),
            "timestamp": moment.replace("+00:00", "Z"),
        }


def _notify(call: PlannedCall, invalidation: Invalidation) -> None:
    """Tell the client of each resource, where it listens."""
    for uri in invalidation.stale_uris():
        call.client.say("notifications/resources/updated", {"uri": uri})


async def _within(seconds: float, notice: Awaitable[Any]) -> None:
    """Wait at most so many seconds, even if the notice does not end when it is cancelled. Raises TimeoutError."""
    telling = asyncio.ensure_future(notice)
    # When the time is over nobody asks for it.
    telling.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        done, _ = await asyncio.wait((telling,), timeout=seconds)
        if not done:
            raise TimeoutError
        telling.result()
    finally:
        telling.cancel()


def definition_with_cache_control(
    definition: Mapping[str, Any], sync: StateSync, server: str
) -> Mapping[str, Any]:
    """Return the tool's entry of ``tools/list`` with the cache directive at the end of its description, once; the
    same object without a directive.
    """
    written = definition.get("description")
    description = written if isinstance(written, str) else ""
    described = sync.described(server, str(definition["name"]), description)
    return definition if described == description else {**definition, "description": described}
