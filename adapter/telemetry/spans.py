"""Spans: pieces of work that are timed, each a child of the one it happens in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from adapter.telemetry.secrets import AttributeRedaction, Value

Attributes = Mapping[str, Value]
Fault = Callable[[Exception], BaseException | None]

TRACEPARENT = "traceparent"

_PROPAGATOR = TraceContextTextMapPropagator()
_LONGEST_TRACEPARENT = 512


class Noted:
    """A span that somebody else begins and ends."""

    def __init__(self, spans: Spans, span: trace.Span) -> None:
        self._spans = spans
        self._span = span

    def set(self, key: str, value: Value) -> None:
        """Note something; the values of telling keys, and secrets in text, are not recorded."""
        self._span.set_attribute(key, self._spans.redaction(key, value))

    def fail(self, error: BaseException) -> None:
        """Note that this ended the work. It need not leave the ``with``; whatever leaves that is noted anyway.

        A fault makes the span an error. A refusal, a cancellation and the end of the process change nothing.
        """
        fault = self._spans.fault(error) if isinstance(error, Exception) else None
        if fault is None:
            return
        name, message = _name_of(fault), self._spans.redaction.message(fault)
        self._span.set_status(Status(StatusCode.ERROR, f"{name}: {message}" if message else name))
        # Not record_exception: it adds a traceback, which quotes the message as it was.
        self._span.add_event("exception", {"exception.type": name, "exception.message": message})


class RecordedSpan(Noted):
    """One piece of work while it is done: begun by ``with``, current in all that runs within, also in tasks."""

    def __init__(
        self, spans: Spans, name: str, attributes: Attributes, kind: SpanKind, carrier: object
    ) -> None:
        super().__init__(spans, trace.INVALID_SPAN)
        self._name = name
        self._attributes = attributes
        self._kind = kind
        self._carrier = carrier

    def __repr__(self) -> str:
        return f"<Span {self._name!r}>"

    def __enter__(self) -> RecordedSpan:
        clean = self._spans.redaction
        self._span = self._spans.tracer.start_span(
            self._name,
            context=_context_of(self._carrier),
            kind=self._kind,
            attributes={key: clean(key, value) for key, value in self._attributes.items()},
        )
        self._around = contexts.get_current()
        contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Not by a token, which holds in the task alone that began the span: a stage may go on in another.
        contexts.attach(self._around)
        if error is not None:
            self.fail(error)
        self._span.end()


class Spans:
    """The Tracing of adapter.pipeline.tracing, which this room does not know.

    ``fault`` tells what of an exception is to be recorded: None for a refusal, the caller's mistake; else the
    exception itself or the one behind it.
    """

    def __init__(self, tracer: trace.Tracer, redaction: AttributeRedaction, fault: Fault) -> None:
        self.tracer = tracer
        self.redaction = redaction
        self.fault = fault

    def span(self, name: str, attributes: Attributes) -> RecordedSpan:
        """A span around a block, child of the one that is current."""
        return RecordedSpan(self, name, attributes, SpanKind.INTERNAL, None)

    def call_span(self, name: str, attributes: Attributes, carrier: Mapping[str, object]) -> RecordedSpan:
        """A span around a call from outside, child of the one that the client names.

        ``carrier`` is the request's header fields or its ``_meta`` (SEP-414): of either, ``traceparent`` (W3C Trace
        Context) is read and nothing else. One that is malformed counts as none.
        """
        return RecordedSpan(self, name, attributes, SpanKind.SERVER, carrier.get(TRACEPARENT))

    def current(self) -> Noted:
        """The span that is current; one that records nothing outside of any."""
        return Noted(self, trace.get_current_span())

    def trace_id(self) -> str | None:
        """The current trace in 32 hexadecimal digits; None outside of any."""
        current = trace.get_current_span().get_span_context()
        return trace.format_trace_id(current.trace_id) if current.is_valid else None

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Put the current span into the header fields of a request; without one nothing is put there."""
        _PROPAGATOR.inject(headers)


def _context_of(traceparent: object) -> Context | None:
    # Longer ones are refused by the propagator too, but with a line in the log for each.
    if not isinstance(traceparent, str) or len(traceparent) > _LONGEST_TRACEPARENT:
        return None
    return _PROPAGATOR.extract({TRACEPARENT: traceparent}, contexts.get_current())


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
