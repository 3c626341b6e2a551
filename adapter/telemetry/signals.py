"""Signals for OpenTelemetry: spans and log lines, and the part of their attributes that may leave."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from adapter.rules.calls.tracing import Attributes, Value
from adapter.rules.text.events import encodable, is_telling

HIDDEN = "[REDACTED]"


class AttributeRedaction:
    """Hides the value of a telling key whatever it is, and passes all other text through ``redact``.

    ``redact`` takes credentials and connection strings out of a text, and may shorten it.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def __call__(self, key: str, value: Value) -> Value:
        """The value that is recorded under this key."""
        if is_telling(key):
            return HIDDEN
        return encodable(self._redact(value)) if isinstance(value, str) else value

    def message(self, error: BaseException) -> str:
        """The text of an exception, as far as it may be told."""
        try:
            return encodable(self._redact(str(error)))
        except Exception:
            # An exception of somebody's code, whose __str__ is that code too.
            return ""


# --- spans ------------------------------------------------------------------------------------------------------

Fault = Callable[[Exception], BaseException | None]

_PROPAGATOR = TraceContextTextMapPropagator()
_LONGEST_TRACEPARENT = 512
"""Characters. Longer ones are refused by the propagator too, but with a line in the log for each."""

REQUEST_ID = "jsonrpc.request.id"
LONGEST_ID = 64
"""Characters of a request's id that are recorded."""


class RecordedSpan:
    """A Span of the port: one of the SDK, whose values pass redaction; ``around`` is the context it was begun in, and
    None for one that is not current.
    """

    __slots__ = ("_around", "_span", "_spans")

    def __init__(self, spans: Spans, span: trace.Span, around: Context | None = None) -> None:
        self._spans = spans
        self._span = span
        self._around = around
        if around is not None:
            contexts.attach(trace.set_span_in_context(span))

    @property
    def traceparent(self) -> str:
        """See Span."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, key: str, value: Value) -> None:
        """See Span; the values of telling keys, and secrets in text, are not recorded."""
        self._span.set_attribute(key, self._spans.redaction(key, value))

    def fail(self, error: BaseException) -> None:
        """See Span. A fault makes it an error. A refusal, a cancellation and the end of the process change nothing."""
        fault = self._spans.fault(error) if isinstance(error, Exception) else None
        if fault is None:
            return
        name, message = _name_of(fault), self._spans.redaction.message(fault)
        self._span.set_status(Status(StatusCode.ERROR, f"{name}: {message}" if message else name))
        # Not record_exception: it adds a traceback, which quotes the message as it was.
        self._span.add_event("exception", {"exception.type": name, "exception.message": message})

    def end(self, error: str = "", message: str = "") -> None:
        """See Span."""
        if self._around is not None:
            # Not by a token, which holds in the task alone that began the span: a stage may go on in another.
            contexts.attach(self._around)
        span = self._span
        if error and isinstance(span, ReadableSpan):
            kind = str((span.attributes or {}).get("error.type", error))
            span.set_attribute("error.type", kind)
            # All of JSON-RPC's own are negative; a status of HTTP is not.
            if kind.startswith("-"):
                span.set_attribute("rpc.response.status_code", kind)
            span.set_status(Status(StatusCode.ERROR, span.status.description or message))
        span.end()

    def __enter__(self) -> RecordedSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        self.end()


class Spans:
    """The Tracer of adapter.rules.calls.tracing on the SDK's.

    ``fault`` returns the exception to record, which may be the one behind it; None for a refusal, the caller's mistake.
    """

    def __init__(self, tracer: trace.Tracer, redaction: AttributeRedaction, fault: Fault) -> None:
        self.redaction = redaction
        self.fault = fault
        self._tracer = tracer
        # Nearly all spans are like one before.
        self._clean = functools.lru_cache(1024)(self._cleaned)

    def span(self, name: str, attributes: Attributes) -> RecordedSpan:
        """See Tracer."""
        return RecordedSpan(self, self._started(name, attributes, None), contexts.get_current())

    def server_span(
        self,
        name: str,
        attributes: Attributes,
        *traceparents: object,
        request_id: str | int | float | None = None,
    ) -> RecordedSpan:
        """See Tracer. Of W3C Trace Context ``traceparent`` is read and nothing else."""
        context = Context()
        links: list[trace.Link] = []
        for text in dict.fromkeys(traceparents):
            if isinstance(text, str) and len(text) <= _LONGEST_TRACEPARENT:
                found = _PROPAGATOR.extract({"traceparent": text})
                if context and found:
                    links.append(trace.Link(trace.get_current_span(found).get_span_context()))
                context = context or found
        span = self._started(name, attributes, request_id, context=context, kind=SpanKind.SERVER, links=links)
        return RecordedSpan(self, span, contexts.get_current())

    def client_span(
        self, name: str, attributes: Attributes, request_id: str | int | float | None
    ) -> RecordedSpan | None:
        """See Tracer."""
        if not trace.get_current_span().get_span_context().trace_flags.sampled:
            return None
        span = self._started(name, attributes, request_id, kind=SpanKind.CLIENT)
        return RecordedSpan(self, span) if span.is_recording() else None

    def current(self) -> RecordedSpan:
        """See Tracer. Whoever began the span ends it."""
        return RecordedSpan(self, trace.get_current_span())

    def trace_id(self) -> str | None:
        """See Tracer."""
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None

    def recorded_trace(self) -> str | None:
        """See Tracer."""
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.trace_flags.sampled else None

    def _cleaned(self, attributes: tuple[tuple[str, Value], ...]) -> dict[str, Value]:
        return {key: self.redaction(key, value) for key, value in attributes}

    def _started(
        self, name: str, attributes: Attributes, request_id: str | float | None, **options: Any
    ) -> trace.Span:
        clean = self._clean(tuple(attributes.items()))
        if request_id is not None:
            shown: Value = str(request_id)[:LONGEST_ID]
            # A number holds no secret.
            if isinstance(request_id, str):
                shown = self.redaction(REQUEST_ID, shown)
            clean = {**clean, REQUEST_ID: shown}
        return self._tracer.start_span(name, attributes=clean, **options)


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
            attributes={
                key: self._redaction(key, _plain(value))
                for key, value in line.items()
                if key not in _SAID_OTHERWISE and value is not None
            },
        )


def _plain(value: object) -> Value:
    return value if isinstance(value, str | int | float | bool) else str(value)
