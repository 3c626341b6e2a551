"""The stages that one exchange walks, timed for whoever watches: a Tracing that keeps them beside the exchange."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import NamedTuple

from adapter.pipeline.failures import StageFailed
from adapter.pipeline.tracing import Attributes, Span, Tracing

STAGES = 64
"""Stages of one exchange that are kept."""

LONGEST = 128
"""Characters that are kept of a name."""

_STAGE = "stage."


class WalkedStage(NamedTuple):
    """``start_ms`` is since the exchange began. ``outcome``: ok, failed, cancelled, timeout, busy, rate, unfinished."""

    name: str
    start_ms: float
    ms: float
    outcome: str


class StageTimings:
    """The stages of one exchange, in the order they began."""

    __slots__ = ("_began", "_stages")

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._stages: list[_Stage] = []

    def __repr__(self) -> str:
        return f"<StageTimings of {len(self._stages)} stages>"

    def stage(self, name: str) -> AbstractContextManager[Span]:
        """A stage that begins and ends with a block."""
        if len(self._stages) >= STAGES:
            return nullcontext(_NOTHING)
        stage = _Stage(name[:LONGEST])
        self._stages.append(stage)
        return stage

    def so_far(self) -> tuple[WalkedStage, ...]:
        """The stages that were walked until now."""
        # Most exchanges walk none.
        return tuple(stage.told(self._began) for stage in self._stages) if self._stages else ()


_walk: ContextVar[StageTimings | None] = ContextVar("walk", default=None)


def begin_walk() -> None:
    """An exchange begins: the stages of this task, and of the tasks that it starts, are its own from now on."""
    _walk.set(StageTimings())


def walked() -> tuple[WalkedStage, ...]:
    """The stages of this task's exchange until now."""
    walk = _walk.get()
    return () if walk is None else walk.so_far()


class _Stage:
    __slots__ = ("_began", "_ended", "_name", "_outcome")

    def __init__(self, name: str) -> None:
        self._name = name
        self._outcome = "ok"
        self._began = time.perf_counter()
        self._ended: float | None = None

    def __enter__(self) -> _Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = time.perf_counter()
        if error is not None:
            self.fail(error)

    def set(self, key: str, value: str | int | float | bool) -> None:
        """See Span. What is noted there is for traces; here it would only take room."""

    def fail(self, error: BaseException) -> None:
        """See Span."""
        if isinstance(error, asyncio.CancelledError):
            self._outcome = "cancelled"
        elif isinstance(error, StageFailed) and error.reason is not None:
            self._outcome = error.reason
        else:
            self._outcome = "failed"

    def told(self, exchange_began: float) -> WalkedStage:
        # A stage may outlast its exchange by a moment, when that was cut off.
        ended, outcome = self._ended, self._outcome
        if ended is None:
            ended, outcome = time.perf_counter(), "unfinished"
        return WalkedStage(
            self._name,
            _milliseconds(self._began - exchange_began),
            _milliseconds(ended - self._began),
            outcome,
        )


class _Nothing:
    def set(self, key: str, value: str | int | float | bool) -> None:
        """See Span."""

    def fail(self, error: BaseException) -> None:
        """See Span."""


_NOTHING = _Nothing()


class Waterfall:
    """The Tracing that keeps stages with the exchange they belong to. Other spans are nothing to it."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Span]:  # noqa: ARG002 - a Tracing
        """See Tracing."""
        walk = _walk.get()
        if walk is None or not name.startswith(_STAGE):
            return nullcontext(_NOTHING)
        return walk.stage(name.removeprefix(_STAGE))

    def call_span(
        self,
        name: str,  # noqa: ARG002 - a Tracing
        attributes: Attributes,  # noqa: ARG002 - a Tracing
        carrier: Mapping[str, object],  # noqa: ARG002 - a Tracing
    ) -> AbstractContextManager[Span]:
        """See Tracing."""
        return nullcontext(_NOTHING)

    def current(self) -> Span:
        """See Tracing."""
        return _NOTHING

    def trace_id(self) -> str | None:
        """None: what is kept here has no id."""
        return None


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


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
