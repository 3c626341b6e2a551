"""Records of planned calls; the composition root chooses the recorder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from adapter.pipeline.call import Forward, PlannedCall, PlanStage
from adapter.pipeline.failures import Outcome, StageFailed
from adapter.pipeline.order import Part

Attributes = Mapping[str, str | int | float | bool]

_EXECUTE = "stage.execute"

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
    """Records the walks of plans, with spans, measures or both.

    Stages are around each other, but their spans are siblings, each as long as the stage itself works: it ends where
    the stage calls the rest of the plan, and a stage that goes on with the answer has a second span.
    """

    def __init__(self, tracing: Tracing | None, measures: Measures | None = None) -> None:
        self.tracing = tracing
        self._measures = measures

    def step(self, name: str, part: Part, run: PlanStage) -> PlanStage:
        """A stage with its work in spans; ``part`` is when it works."""
        tracing = self.tracing
        if tracing is None:
            return run

        async def observed(call: PlannedCall, forward: Forward) -> Outcome:
            laps = _Laps(tracing, name, call)
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
        tracing = self.tracing
        if tracing is None:
            return execute

        async def walk(call: PlannedCall) -> Outcome:
            laps = _Laps(tracing, "execute", call)
            laps.begin()
            try:
                outcome = await execute(call)
            except BaseException as error:
                laps.end(error)
                raise
            laps.end(None)
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
                if call.time.overdue is None:
                    self._count(call, outcome, failed, time.perf_counter() - began)

        return observed

    def overdue(self, call: PlannedCall, failed: StageFailed) -> None:
        """Record that a call's time has ended; its walk may end later or never."""
        if self.tracing is not None:
            _note_failure(self.tracing.current(), failed)
        self._count(call, None, failed, call.time.seconds or 0.0)

    async def _told(self, kind: str, walk: Forward, call: PlannedCall) -> Outcome:
        if self.tracing is None:
            return await walk(call)
        span = self.tracing.current()
        span.set("tool.kind", kind)
        call.context["trace_id"] = self.tracing.trace_id()
        try:
            outcome = await walk(call)
        except StageFailed as failed:
            if call.time.overdue is None:
                _note_failure(span, failed)
            raise
        if call.time.overdue is None:
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


class _Laps:
    """The spans of one stage of one call, of which at most one is open."""

    __slots__ = ("_attributes", "_call", "_name", "_open", "_span", "_tracing")

    def __init__(self, tracing: Tracing, name: str, call: PlannedCall) -> None:
        self._tracing = tracing
        self._name = f"stage.{name}"
        self._attributes = {"tool.name": call.tool, "stage": name}
        self._call = call
        self._open: AbstractContextManager[Span] | None = None

    def begin(self) -> None:
        self._open = self._tracing.span(self._name, self._attributes)
        self._span = self._open.__enter__()

    def end(self, error: BaseException | None) -> None:
        """``error`` leaves the stage; harmless where no span is open."""
        if self._open is None:
            return
        opened, self._open = self._open, None
        if self._name == _EXECUTE and CACHE in self._call.notes:
            self._span.set("cache.hit", self._call.notes[CACHE] == "hit")
        # What is cancelled at its deadline was not given up by its client.
        error = self._call.time.overdue or error
        if error is not None:
            self._span.fail(error)
        opened.__exit__(None, None, None)


def _note_failure(span: Span, failed: StageFailed) -> None:
    span.set("error.stage", failed.stage)
    if failed.reason is not None:
        # Else the kind of failure is that of the answer, as for every other span.
        span.set("error.type", failed.reason)
    span.fail(failed)


class BothTracings:
    """Two Tracings that both record each span. The trace's id is the first one's that has any."""

    def __init__(self, first: Tracing, second: Tracing) -> None:
        self._first = first
        self._second = second

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """See Tracing."""
        return _joined(self._first.span(name, attributes), self._second.span(name, attributes))

    def call_span(
        self, name: str, attributes: Attributes, carrier: Mapping[str, object]
    ) -> AbstractContextManager[Span]:
        """See Tracing."""
        return _joined(
            self._first.call_span(name, attributes, carrier),
            self._second.call_span(name, attributes, carrier),
        )

    def current(self) -> Span:
        """See Tracing."""
        return _BothSpans(self._first.current(), self._second.current())

    def trace_id(self) -> str | None:
        """See Tracing."""
        return self._first.trace_id() or self._second.trace_id()


class _BothSpans(NamedTuple):
    first: Span
    second: Span

    def set(self, key: str, value: str | int | float | bool) -> None:
        self.first.set(key, value)
        self.second.set(key, value)

    def fail(self, error: BaseException) -> None:
        self.first.fail(error)
        self.second.fail(error)


@contextmanager
def _joined(first: AbstractContextManager[Span], second: AbstractContextManager[Span]) -> Iterator[Span]:
    with first as one, second as other:
        yield _BothSpans(one, other)
