"""The beginning of a relayed request's span: its parent, the decision to sample it, and the facts of its sort."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision, ParentBased, Sampler
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags

from adapter.telemetry.request_spans import CURRENT, SAMPLED, RequestSpan, SpanSort, UpstreamSpan, Value
from adapter.telemetry.signals import AttributeRedaction

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
        self, record: Callable[[Any], None], sampler: Sampler, redaction: AttributeRedaction
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
