"""Records of planned calls; the composition root chooses the recorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from adapter.pipeline.call import Forward, PlannedCall, PlanStage
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.pipeline.order import Part
from adapter.rules.calls.tracing import Span, Tracer
from adapter.rules.metrics.catalogue import TOOL_AUTH_FAILURES, TOOL_CACHE_LOOKUPS
from adapter.rules.metrics.metric import MetricSink

_EXECUTE = "execute"

CACHE = "cache"
"""The note of a call that says whether its result was kept already: ``hit`` or ``miss``."""


class TimedStage(Protocol):
    """A stage that people are shown with its times."""

    def end(self, error: BaseException | None) -> None:
        """It is over; ``error`` ended it."""


Timed = Callable[[str], TimedStage | None]
"""Begins the timing of a stage by its name; None where nobody is shown it."""


class WalkRecorder:
    """Records the walks of plans, with spans, counts and timings; each may be None.

    Stages are around each other, but their spans are siblings, each as long as the stage itself works: it ends where
    the stage calls the rest of the plan, and a stage that goes on with the answer has a second span.
    """

    def __init__(
        self, tracing: Tracer | None, counts: MetricSink | None = None, timed: Timed | None = None
    ) -> None:
        self.tracing = tracing
        self._counts = counts
        self._timed = timed

    def step(self, name: str, part: Part, run: PlanStage) -> PlanStage:
        """A stage with its work in spans; ``part`` is when it works."""
        tracing, timed = self.tracing, self._timed
        if tracing is None and timed is None:
            return run

        async def observed(call: PlannedCall, forward: Forward) -> Outcome:
            laps = _Laps(tracing, timed, name, call)
            passing: Exception | None = None

            async def behind(call: PlannedCall) -> Outcome:
                nonlocal passing
                laps.end(None)
                try:
                    outcome = await forward(call)
                except Exception as error:
                    passing = error
                    if part == "around":
                        laps.begin()
                    raise
                if part != "before":
                    laps.begin()
                return outcome

            if part != "after":
                laps.begin()
            try:
                outcome = await run(call, behind)
            except BaseException as error:
                laps.end(None if error is passing else error)
                raise
            laps.end(None)
            return outcome

        return observed

    def work(self, execute: Forward) -> Forward:
        """The execution of a tool within a span."""
        if self.tracing is None and self._timed is None:
            return execute

        async def run(call: PlannedCall, forward: Forward) -> Outcome:  # noqa: ARG001  (a PlanStage is given it)
            return await execute(call)

        observed = self.step(_EXECUTE, "before", run)
        return lambda call: observed(call, execute)

    def whole(self, kind: str, walk: Forward) -> Forward:
        """A whole plan: the call's span says how it ended, and that is counted."""

        async def observed(call: PlannedCall) -> Outcome:
            span = None if self.tracing is None else self.tracing.current()
            if self.tracing is not None and span is not None:
                span.set("tool.kind", kind)
                call.context["trace_id"] = self.tracing.trace_id()
            failed: StageFailed | None = None
            try:
                outcome = await walk(call)
            except StageFailed as error:
                failed = error
                if call.time.overdue is None and span is not None:
                    _note_failure(span, failed)
                raise
            finally:
                if call.time.overdue is None:
                    self._count(call, failed)
            if span is not None:
                if call.time.overdue is None:
                    span.set("success", not outcome.is_error)
                if CACHE in call.notes:
                    span.set("cache.hit", call.notes[CACHE] == "hit")
            return outcome

        return observed

    def overdue(self, call: PlannedCall, failed: StageFailed) -> None:
        """Record that a call's time has ended; its walk may end later or never."""
        if self.tracing is not None:
            _note_failure(self.tracing.current(), failed)
        self._count(call, failed)

    def _count(self, call: PlannedCall, failed: StageFailed | None) -> None:
        if self._counts is None:
            return
        if CACHE in call.notes:
            self._counts.count(TOOL_CACHE_LOOKUPS, call.server, call.notes[CACHE])
        if failed is not None and failed.stage == "auth":
            self._counts.count(TOOL_AUTH_FAILURES, call.server)


class _Laps:
    """The spans and timings of one stage of one call, of which at most one of each is open."""

    __slots__ = ("_call", "_name", "_span", "_timed", "_timing", "_tracing")

    def __init__(self, tracing: Tracer | None, timed: Timed | None, name: str, call: PlannedCall) -> None:
        self._tracing = tracing
        self._timed = timed
        self._name = name
        self._call = call
        self._span: Span | None = None
        self._timing: TimedStage | None = None

    def begin(self) -> None:
        if self._tracing is not None:
            attributes = {"tool.name": self._call.tool, "stage": self._name}
            self._span = self._tracing.span(f"stage.{self._name}", attributes)
        if self._timed is not None:
            self._timing = self._timed(self._name)

    def end(self, error: BaseException | None) -> None:
        """``error`` leaves the stage; harmless where nothing is open."""
        # What is cancelled at its deadline was not given up by its client.
        error = self._call.time.overdue or error
        timing, self._timing = self._timing, None
        if timing is not None:
            timing.end(error)
        span, self._span = self._span, None
        if span is not None:
            if self._name == _EXECUTE and CACHE in self._call.notes:
                span.set("cache.hit", self._call.notes[CACHE] == "hit")
            if error is not None:
                span.fail(error)
            span.end()


def _note_failure(span: Span, failed: StageFailed) -> None:
    span.set("error.stage", failed.stage)
    if failed.reason is not None:
        # Else the kind of failure is that of the answer, as for every other span.
        span.set("error.type", failed.reason)
    span.fail(failed)
