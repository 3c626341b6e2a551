"""The way of spans to the collector: written as OTLP, and sent as one request for each batch.

The SDK's queue holds them meanwhile, and drops the oldest while a collector is away, is slow or never answers. Its own
exporter would take twelve times as long for the span of a request, which is copied from the part that all of its sort
have in common. The answer of a collector is read up to some kilobytes, and none of it is kept.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from adapter.telemetry.request_spans import Extras, RequestSpan, SpanSort

# As the SDK's own exporters, whose lines the log takes in and never ships.
_log = logging.getLogger("opentelemetry.exporter.spans")

READ_AT_MOST = 64 << 10
"""Bytes of a collector's answer that are read, so that its connection can serve again."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
"""Seconds between two attempts to deliver one batch; each pause is twice as long as the one before."""

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
"""The method of OTLP over gRPC."""

_AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP allows another attempt ("Retryable Response Codes")."""


class SpanSender(Protocol):
    """Delivers one export, an ExportTraceServiceRequest of OTLP."""

    def send(self, request: bytes, within: float) -> bool:
        """Deliver it within about so many seconds. Returns False where it may be sent again; never raises OSError."""

    def close(self) -> None:
        """Give up what is under way."""


class CollectorExporter(SpanExporter):
    """Sends spans of the SDK, and those of requests as of this ``resource`` and the instrumentation ``scope``.

    ``is_open`` is asked before each attempt, and ``timeout`` (seconds) bounds all attempts for one batch.
    """

    def __init__(
        self, resource: Resource, scope: str, sender: SpanSender, is_open: Callable[[], bool], timeout: float
    ) -> None:
        # The SDK knows how to write a resource down; all exports have the same one.
        sample = ReadableSpan(
            "",
            SpanContext(1, 1, is_remote=False),
            resource=resource,
            instrumentation_scope=InstrumentationScope(scope),
        )
        self._empty: Any = encode_spans([sample])
        del self._empty.resource_spans[0].scope_spans[0].spans[:]
        self._sender = sender
        self._is_open = is_open
        self._timeout = timeout
        self._ending = threading.Event()

    def encoded(self, batch: Sequence[ReadableSpan | RequestSpan]) -> bytes:
        """The ExportTraceServiceRequest that exports these spans."""
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._empty)
        (group,) = request.resource_spans
        spans = group.scope_spans[0].spans
        for span in batch:
            if isinstance(span, RequestSpan):
                _write(span, spans.add())
        for other in encode_spans([span for span in batch if isinstance(span, ReadableSpan)]).resource_spans:
            group.scope_spans.extend(other.scope_spans)
        found: bytes = request.SerializeToString()
        return found

    def export(self, batch: Sequence[ReadableSpan | RequestSpan]) -> SpanExportResult:
        """Send a batch; what fails for a reason that may pass is sent again."""
        request, end, pause = self.encoded(batch), time.monotonic() + self._timeout, FIRST_PAUSE
        while self._is_open() and not self._sender.send(request, max(0.1, end - time.monotonic())):
            if time.monotonic() + pause >= end or self._ending.wait(pause):
                _log.error("Failed to export span batch in time")
                return SpanExportResult.FAILURE
            pause = min(2 * pause, LONGEST_PAUSE)
        return SpanExportResult.SUCCESS

    def end(self) -> None:
        """Try nothing a second time from now on."""
        self._ending.set()

    def shutdown(self) -> None:
        """Give up what is under way."""
        self._sender.close()


_ERROR = otlp.Status.STATUS_CODE_ERROR

_PARENT_KNOWN, _PARENT_REMOTE = 0x100, 0x200
"""Bits of a span's flags: the second is meant where the first is set (opentelemetry-proto, SpanFlags)."""


def _write(span: RequestSpan, message: Any) -> None:
    sort = span.sort
    message.CopyFrom(sort.message or _begun(sort))
    message.trace_id, message.span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    message.parent_span_id = bytes.fromhex(span.parent_id)
    message.start_time_unix_nano, message.end_time_unix_nano = span.started, span.ended
    # Of a client's request the parent is in another program, of one to an upstream it is here.
    message.flags = span.flags | _PARENT_KNOWN | (0 if sort.client or not span.parent_id else _PARENT_REMOTE)
    if span.request_id is not None:
        message.attributes.add(key="jsonrpc.request.id").value.string_value = _text(str(span.request_id))
    if span.extras is not None:
        _write_rare(span.extras, message)


def _begun(sort: SpanSort) -> Any:
    """The part of a span that all of its sort have in common."""
    kind = otlp.Span.SPAN_KIND_CLIENT if sort.client else otlp.Span.SPAN_KIND_SERVER
    sort.message = otlp.Span(name=_text(sort.name), kind=kind, attributes=_pairs(dict(sort.attributes)))
    return sort.message


def _write_rare(extras: Extras, message: Any) -> None:
    """Write the part that most do not have."""
    message.attributes.extend(_pairs(extras.attributes))
    if extras.failed:
        message.status.code = _ERROR
        message.status.message = _text(extras.message)
    code = extras.attributes.get("error.type")
    # All of JSON-RPC's own are negative; a status of HTTP is not.
    if isinstance(code, str) and code.startswith("-"):
        message.attributes.extend(_pairs({"rpc.response.status_code": code}))
    for name, moment, attributes in extras.events:
        message.events.add(name=name, time_unix_nano=moment, attributes=_pairs(attributes))
    if extras.link is not None:
        trace_id, span_id, flags = extras.link
        message.links.add(trace_id=bytes.fromhex(trace_id), span_id=bytes.fromhex(span_id), flags=flags)


def _pairs(attributes: Mapping[str, Any]) -> Iterable[KeyValue]:
    return [KeyValue(key=_text(key), value=_value(value)) for key, value in attributes.items()]


def _value(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=_text(str(value)))


def _text(text: str) -> str:
    """The text without what UTF-8 cannot hold: the rest of it is still worth something."""
    return text.encode("utf-8", "replace").decode("utf-8")


class HttpSender:
    """Sends to a URL with protobuf. The variables of the environment for certificates and proxies apply."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        import requests

        self._failures = requests.RequestException
        self._url = url
        self._session = requests.Session()
        self._session.headers.update(_from_environment("HEADERS"))
        self._session.headers.update({**headers, "content-type": "application/x-protobuf"})
        trusted = _variable("CERTIFICATE")
        own, key = _variable("CLIENT_CERTIFICATE"), _variable("CLIENT_KEY")
        self._options: dict[str, Any] = {
            "verify": trusted or True,
            "cert": (own, key) if own and key else own,
        }

    def send(self, request: bytes, within: float) -> bool:
        """See SpanSender."""
        try:
            answer = self._session.post(
                self._url,
                request,
                timeout=within,
                stream=True,
                allow_redirects=False,
                **self._options,
            )
            with answer:
                answer.raw.read(READ_AT_MOST)
                is_final = answer.status_code not in _AGAIN
                if is_final and not answer.ok:
                    _log.error("Failed to export span batch, HTTP status: %s", answer.status_code)
                return is_final
        except (self._failures, OSError, ValueError):
            return False
        except Exception as error:
            # What urllib3 raises while an answer is read is none of the above.
            return type(error).__module__.partition(".")[0] != "urllib3"

    def close(self) -> None:
        """See SpanSender."""
        self._session.close()


class GrpcSender:
    """Sends over gRPC to ``host:port``. The variables of the environment for certificates apply."""

    def __init__(self, target: str, headers: Mapping[str, str], *, insecure: bool) -> None:
        import grpc  # type: ignore[import-untyped]  # it comes without types

        self._failure = grpc.RpcError
        self._final = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}
        self._final |= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
        self._headers = tuple({**_from_environment("HEADERS"), **headers}.items())
        self._channel = (
            grpc.insecure_channel(target)
            if insecure
            else grpc.secure_channel(
                target,
                grpc.ssl_channel_credentials(
                    _read(_variable("CERTIFICATE")),
                    _read(_variable("CLIENT_KEY")),
                    _read(_variable("CLIENT_CERTIFICATE")),
                ),
            )
        )
        # Without functions that make messages of bytes: they are bytes.
        self._export = self._channel.unary_unary(EXPORT)

    def send(self, request: bytes, within: float) -> bool:
        """See SpanSender."""
        try:
            self._export(request, timeout=within, metadata=self._headers)
        except self._failure as error:
            is_final = error.code() in self._final
            if is_final:
                _log.error("Failed to export span batch, gRPC status: %s", error.code().name)
            return is_final
        return True

    def close(self) -> None:
        """See SpanSender."""
        self._channel.close()


def _variable(name: str) -> str | None:
    """OpenTelemetry's variable for traces, or else for all signals; None where neither is set."""
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(
        f"OTEL_EXPORTER_OTLP_{name}"
    )
    return found or None


def _from_environment(name: str) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers

    return dict(parse_env_headers(_variable(name) or "", liberal=True))


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
