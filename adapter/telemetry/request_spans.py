"""Spans of relayed requests while they are under way: one for the client's, one for each that goes upstream.

Every request has two of them, so they are no spans of the SDK: each is some numbers and a reference to what all
requests of its sort have in common, and ``span_export`` makes OTLP of it in the thread that exports.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar

from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, ParentBased, Sampler
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

MOST_ATTRIBUTES = 32
MOST_EVENTS = 8
"""Attributes and events of one request that are kept beside those of its sort."""

SAMPLED = 1
"""The flag of a trace that is recorded."""

Value = str | int | float | bool


class SpanSort:
    """The facts that many spans share. ``attributes`` have passed redaction; ``client``: the request goes upstream.

    ``message`` are they in OTLP, None until a span of this sort is exported for the first time.
    """

    __slots__ = ("attributes", "client", "message", "name")

    def __init__(self, name: str, attributes: tuple[tuple[str, Value], ...], *, client: bool) -> None:
        self.name = name
        self.attributes = attributes
        self.client = client
        self.message: Any = None

    def __repr__(self) -> str:
        return f"<SpanSort {self.name!r}>"

    @property
    def kind(self) -> SpanKind:
        """The kind as OpenTelemetry knows it."""
        return SpanKind.CLIENT if self.client else SpanKind.SERVER


class Extras:
    """The parts that few spans have. ``failed``: the status is an error, and ``message`` says which. ``link`` is a span
    of another program, as the W3C field ``traceparent`` names it: ids in hexadecimal digits, and flags.
    """

    __slots__ = ("attributes", "events", "failed", "link", "message")

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.events: list[tuple[str, int, dict[str, Any]]] = []
        self.link: tuple[str, str, int] | None = None
        self.failed = False
        self.message = ""


class RequestSpan:
    """A client's request. Times are nanoseconds of Unix time, ids hexadecimal digits.

    ``parent_id`` is "" at the root of a trace. One that is not ``sampled`` is not recorded.
    """

    __slots__ = (
        "ended",
        "extras",
        "flags",
        "parent_id",
        "request_id",
        "sampled",
        "sort",
        "span_id",
        "started",
        "trace_id",
    )

    def __init__(
        self,
        sort: SpanSort,
        trace_id: str,
        parent_id: str,
        flags: int,
        request_id: str | int | float | None,
    ) -> None:
        self.sort = sort
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.flags = flags
        self.sampled = bool(flags & SAMPLED)
        self.request_id = request_id
        self.extras: Extras | None = None
        self.ended = 0
        self.span_id = f"{random.getrandbits(64):016x}"
        self.started = time.time_ns()

    def __repr__(self) -> str:
        return f"<RequestSpan {self.sort.name!r} {self.span_id}>"

    def fail(self, error: str, message: str = "") -> None:
        """Note a failure: its kind, of which there are few, and a word without secrets. The first kind stays."""
        extras = self._extras()
        extras.failed = True
        if "error.type" not in extras.attributes:
            extras.attributes["error.type"] = error
            extras.message = extras.message or message

    def link(self, span: tuple[str, str, int]) -> None:
        """Note another span that led to this request."""
        self._extras().link = span

    context: ClassVar[SpanContext] = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(SAMPLED))
    """The answer to the SDK's queue, which asks each span whether it is sampled; others never come there."""

    def identity(self) -> SpanContext:
        """The identity of this span for spans of the SDK below it."""
        flags = TraceFlags(self.flags)
        return SpanContext(int(self.trace_id, 16), int(self.span_id, 16), is_remote=False, trace_flags=flags)

    # --- as a span of the SDK, for the notes of stages -----------------------------------------------------------

    def set_attribute(self, key: str, value: Value) -> None:
        """Note something; above MOST_ATTRIBUTES nothing is added."""
        attributes = self._extras().attributes
        if len(attributes) < MOST_ATTRIBUTES or key in attributes:
            attributes[key] = value

    def add_event(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Note that something happened now; above MOST_EVENTS nothing is added."""
        events = self._extras().events
        if len(events) < MOST_EVENTS:
            events.append((name, time.time_ns(), dict(attributes)))

    def set_status(self, status: Status) -> None:
        """Note that the request failed, where the status says so."""
        if status.status_code is StatusCode.ERROR:
            extras = self._extras()
            extras.failed, extras.message = True, status.description or ""

    def _extras(self) -> Extras:
        if self.extras is None:
            self.extras = Extras()
        return self.extras


class UpstreamSpan(RequestSpan):
    """A request to an upstream, for the one that is ``current``; ``traceparent`` is the field that goes with it."""

    __slots__ = ("traceparent",)

    def __init__(self, current: RequestSpan, sort: SpanSort, request_id: str | int | float | None) -> None:
        super().__init__(sort, current.trace_id, current.span_id, current.flags, request_id)
        self.traceparent = f"00-{self.trace_id}-{self.span_id}-0{self.flags}"


CURRENT: ContextVar[RequestSpan | None] = ContextVar("request span", default=None)
"""The client's request that is answered in this task, and in those that it started.

It is no span of OpenTelemetry's own context: to put one there and to take it away takes as long as all the rest. Spans
of the SDK are children of it where they have no other parent.
"""


LONGEST_ID = 64
"""Characters of a request's id that are recorded."""


class RequestSpans:
    """Begins the spans of requests. ``record`` takes those that have ended, ``sampler`` decides which of clients'
    requests are recorded.
    """

    current = staticmethod(CURRENT.get)
    """The span of the client's request that is answered now, None outside of any."""

    child = UpstreamSpan
    """Begins the span of a request to an upstream."""

    def __init__(
        self, record: Callable[[Any], None], sampler: Sampler, redaction: Callable[[str, Value], Value]
    ) -> None:
        self.record = record
        self._sampler = sampler
        self._redaction = redaction
        # The usual sampler does what the flag says, and asking it costs as much as a span.
        self._by_flag = _described(sampler) == _described(ParentBased(ALWAYS_ON))

    def __repr__(self) -> str:
        return f"<RequestSpans, sampled by {self._sampler.get_description()}>"

    def sort(self, name: str, attributes: Mapping[str, Value], *, client: bool) -> SpanSort:
        """The sort of spans with this name. Few are made, and kept."""
        clean = self._redaction
        pairs = tuple((key, clean(key, value)) for key, value in attributes.items())
        return SpanSort(str(clean("name", name)), pairs, client=client)

    def begin(
        self, sort: SpanSort, request_id: str | int | float | None, parent: tuple[str, str, int] | None
    ) -> RequestSpan:
        """Begin the span of a client's request, which is current in this task from now on.

        ``parent`` is a span of the client's: trace and span id, and the flags of W3C Trace Context.
        """
        trace_id, parent_id, flags = parent or (f"{random.getrandbits(128):032x}", "", SAMPLED)
        if not self._by_flag:
            flags = (flags & ~SAMPLED) | self._samples(sort, trace_id, parent)
        if isinstance(request_id, str):
            request_id = str(self._redaction("jsonrpc.request.id", request_id[:LONGEST_ID]))
        span = RequestSpan(sort, trace_id, parent_id, flags, request_id)
        CURRENT.set(span)
        return span

    @staticmethod
    def exemplar() -> str | None:
        """The trace of the request that is answered now, in hexadecimal digits; None where none is recorded."""
        span = CURRENT.get()
        return span.trace_id if span is not None and span.sampled else None

    def end(self, span: RequestSpan) -> None:
        """End and record a client's request, which is no longer current."""
        CURRENT.set(None)
        if span.sampled:
            span.ended = time.time_ns()
            self.record(span)

    def _samples(self, sort: SpanSort, trace_id: str, parent: tuple[str, str, int] | None) -> int:
        around = None
        if parent is not None:
            around = trace.set_span_in_context(NonRecordingSpan(_context(*parent)))
        decided = self._sampler.should_sample(
            around, int(trace_id, 16), sort.name, sort.kind, dict(sort.attributes), list[Link]()
        )
        return SAMPLED if decided.decision is Decision.RECORD_AND_SAMPLE else 0


def _described(sampler: Sampler) -> str:
    return str(sampler.get_description())


def _context(trace_id: str, span_id: str, flags: int) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(flags))
