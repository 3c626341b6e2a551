"""Signals for OpenTelemetry: spans and log lines, and the part of their attributes that may leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from adapter.rules.text.events import encodable, is_telling
from adapter.telemetry.request_spans import CURRENT, RequestSpan, Value

# --- attributes -------------------------------------------------------------------------------------------------

MOST_KNOWN = 1024
LONGEST_KNOWN = 64
"""Characters of a text that is known again: names of tools and stages are in every span."""

HIDDEN = "[REDACTED]"


class AttributeRedaction:
    """Hides the value of a telling key whatever it is, and passes all other text through ``redact``.

    ``redact`` takes credentials and connection strings out of a text, and may shorten it.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._harmless: set[tuple[str, str]] = set()

    def __call__(self, key: str, value: Value) -> Value:
        """The value that is recorded under this key."""
        if isinstance(value, str) and (key, value) in self._harmless:
            return value
        if is_telling(key):
            return HIDDEN
        if not isinstance(value, str):
            return value
        shown = encodable(self._redact(value))
        if shown == value and len(value) <= LONGEST_KNOWN:
            if len(self._harmless) >= MOST_KNOWN:
                self._harmless.clear()
            self._harmless.add((key, value))
        return shown

    def message(self, error: BaseException) -> str:
        """The text of an exception, as far as it may be told."""
        try:
            return encodable(self._redact(str(error)))
        except Exception:
            # An exception of somebody's code, whose __str__ is that code too.
            return ""


# --- spans ------------------------------------------------------------------------------------------------------

Attributes = Mapping[str, Value]
Fault = Callable[[Exception], BaseException | None]

TRACEPARENT = "traceparent"

_PROPAGATOR = TraceContextTextMapPropagator()
_LONGEST_TRACEPARENT = 512


class Noted:
    """A span that other code begins and ends."""

    def __init__(self, spans: Spans, span: trace.Span | RequestSpan) -> None:
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
        self._own: trace.Span = trace.INVALID_SPAN
        self._name = name
        self._attributes = attributes
        self._kind = kind
        self._carrier = carrier

    def __enter__(self) -> RecordedSpan:
        clean = self._spans.redaction
        self._span = self._own = self._spans.tracer.start_span(
            self._name,
            context=_context_of(self._carrier) or _around(),
            kind=self._kind,
            attributes={key: clean(key, value) for key, value in self._attributes.items()},
        )
        self._around = contexts.get_current()
        contexts.attach(trace.set_span_in_context(self._own))
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
        self._own.end()


class Spans:
    """The PlanTracer of adapter.pipeline.tracing, which this room does not know.

    ``fault`` returns the exception to record, which may be the one behind it; None for a refusal, the caller's mistake.
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
        inner = trace.get_current_span()
        if inner.get_span_context().is_valid:
            return Noted(self, inner)
        return Noted(self, CURRENT.get() or inner)

    def trace_id(self) -> str | None:
        """The current trace in 32 hexadecimal digits; None outside of any."""
        inner = trace.get_current_span(_around()).get_span_context()
        return trace.format_trace_id(inner.trace_id) if inner.is_valid else None


def _around() -> Context | None:
    """The client's request as the parent of spans, and of log lines, that have no other; None where they have one."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    current = CURRENT.get()
    return None if current is None else trace.set_span_in_context(trace.NonRecordingSpan(current.identity()))


def _context_of(traceparent: object) -> Context | None:
    # Longer ones are refused by the propagator too, but with a line in the log for each.
    if not isinstance(traceparent, str) or len(traceparent) > _LONGEST_TRACEPARENT:
        return None
    return _PROPAGATOR.extract({TRACEPARENT: traceparent}, contexts.get_current())


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- log lines --------------------------------------------------------------------------------------------------

_SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
_EXPORTERS = "opentelemetry"
_SAID_OTHERWISE = ("event", "level", "timestamp")


class Lines:
    """Ships lines of the log, as structlog's processors see them: a mapping with ``event`` and ``level``."""

    def __init__(self, logger: Logger, redaction: AttributeRedaction) -> None:
        self._logger = logger
        self._redaction = redaction

    def __call__(self, line: Mapping[str, object]) -> None:
        """Queue a line, which carries the current trace. Lines of the exporters themselves stay here."""
        if str(line.get("module", "")).partition(".")[0] == _EXPORTERS:
            # Else a collector that is away would be told, on and on, that it is away.
            return
        level = str(line.get("level", "info"))
        self._logger.emit(
            timestamp=time.time_ns(),
            severity_number=_SEVERITIES.get(level, SeverityNumber.INFO),
            severity_text=level.upper(),
            body=self._redaction("event", str(line.get("event", ""))),
            context=_around(),
            attributes={
                key: self._redaction(key, _plain(value))
                for key, value in line.items()
                if key not in _SAID_OTHERWISE and value is not None
            },
        )


def _plain(value: object) -> Value:
    return value if isinstance(value, str | int | float | bool) else str(value)
