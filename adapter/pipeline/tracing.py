"""What is recorded of planned calls, where that is wanted; who records it is the composition root's choice."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import StageFailed
from adapter.pipeline.outcome import Outcome

Attributes = Mapping[str, str | int | float | bool]

CACHE = "cache"
"""The note of a call that says whether its result was kept already: ``hit`` or ``miss``."""


class Span(Protocol):
    """One piece of work that is timed. Attributes never hold arguments."""

    def set(self, key: str, value: str | int | float | bool) -> None:
        """Note something; values pass redaction."""

    def fail(self, error: BaseException) -> None:
        """Note that this ended the work, though it does not leave the block. A refusal makes no error of it."""


class Tracing(Protocol):
    """Spans are children of the one that is current, also in the tasks that a block starts. What leaves a block counts
    as ``fail`` says."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """A span around a block."""

    def call_span(
        self, name: str, attributes: Attributes, carrier: Mapping[str, object]
    ) -> AbstractContextManager[Span]:
        """A span around a call from outside. ``carrier`` is where ``traceparent`` names its parent, if anything."""

    def current(self) -> Span:
        """The span that is current; one that records nothing outside of any."""

    def trace_id(self) -> str | None:
        """The current trace in hexadecimal digits, None outside of any."""


class Measures(Protocol):
    """Counts and durations."""

    def call(self, server: str, tool: str, success: bool, seconds: float) -> None:
        """A planned call ended. ``success``: its result is no error."""

    def cache(self, hit: bool) -> None:
        """A tool's cache was asked."""

    def auth_failed(self) -> None:
        """A tool's own check refused its caller."""


class Observing:
    """Records the walks of plans, with either of its parts or both."""

    def __init__(self, tracing: Tracing | None, measures: Measures | None = None) -> None:
        self.tracing = tracing
        self._measures = measures

    def stage(self, name: str, forward: Forward) -> Forward:
        """A part of a plan within a span of its own."""
        tracing = self.tracing
        if tracing is None:
            return forward

        async def walk(call: PlannedCall) -> Outcome:
            with tracing.span(f"stage.{name}", {"tool.name": call.tool, "stage": name}) as span:
                outcome = await forward(call)
                if name == "execute" and CACHE in call.notes:
                    span.set("cache.hit", call.notes[CACHE] == "hit")
                return outcome

        return walk

    def whole(self, kind: str, walk: Forward) -> Forward:
        """A whole plan: the call's span says how it ended, and that is counted."""

        async def observed(call: PlannedCall) -> Outcome:
            began = time.perf_counter()
            failed: StageFailed | None = None
            outcome: Outcome | None = None
            try:
                outcome = await self._told(kind, walk, call)
                return outcome
            except StageFailed as error:
                failed = error
                raise
            finally:
                self._count(call, outcome, failed, time.perf_counter() - began)

        return observed

    async def _told(self, kind: str, walk: Forward, call: PlannedCall) -> Outcome:
        if self.tracing is None:
            return await walk(call)
        span = self.tracing.current()
        span.set("tool.kind", kind)
        call.context["trace_id"] = self.tracing.trace_id()
        try:
            outcome = await walk(call)
        except StageFailed as failed:
            span.set("error.stage", failed.stage)
            span.set("error.type", failed.reason or "failed")
            span.fail(failed)
            raise
        span.set("success", not outcome.is_error)
        if CACHE in call.notes:
            span.set("cache.hit", call.notes[CACHE] == "hit")
        return outcome

    def _count(
        self, call: PlannedCall, outcome: Outcome | None, failed: StageFailed | None, seconds: float
    ) -> None:
        if self._measures is None:
            return
        self._measures.call(call.server, call.tool, outcome is not None and not outcome.is_error, seconds)
        if CACHE in call.notes:
            self._measures.cache(call.notes[CACHE] == "hit")
        if failed is not None and failed.stage == "auth":
            self._measures.auth_failed()
