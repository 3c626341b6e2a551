"""Spans of requests in OTLP, made by the thread that exports them.

To build a message for each span would cost as much as recording it. So the library encodes what the spans of a sort
have in common, and what few of them have; the numbers of each are put behind it, as protobuf allows: messages of one
type that are joined are one message with the fields of all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from adapter.telemetry.request_spans import Extras, RequestSpan, SpanSort

_ERROR = otlp.Status.STATUS_CODE_ERROR

_PARENT_KNOWN, _PARENT_REMOTE = 0x100, 0x200
"""Bits of a span's flags: the second is meant where the first is set (opentelemetry-proto, SpanFlags)."""

# The tags of trace_id (1), span_id (2), parent_span_id (4), start_time_unix_nano (7), end_time_unix_nano (8) and
# flags (16), each before its value.
_NUMBERS = struct.Struct("<2s16s2s8s2s8sBQBQ2sI").pack
_ROOT_NUMBERS = struct.Struct("<2s16s2s8sBQBQ2sI").pack
_TRACE, _SPAN, _PARENT, _STARTED, _ENDED, _FLAGS = (
    b"\x0a\x10",
    b"\x12\x08",
    b"\x22\x08",
    0x39,
    0x41,
    b"\x85\x01",
)

_ONE_BYTE = 0x80
"""Lengths below are written in one byte."""


class SpanEncoding:
    """Encodes the spans of one ``resource``; ``scope`` is the name of their instrumentation."""

    def __init__(self, resource: Resource, scope: str) -> None:
        # The SDK knows how to write a resource down; all exports have the same one.
        sample = ReadableSpan(
            "",
            SpanContext(1, 1, is_remote=False),
            resource=resource,
            instrumentation_scope=InstrumentationScope(scope),
        )
        (group,) = encode_spans([sample]).resource_spans
        (spans,) = group.scope_spans
        del spans.spans[:]
        del group.scope_spans[:]
        self._resource = group.SerializeToString()
        self._scope = spans.SerializeToString()

    def __call__(self, batch: Sequence[RequestSpan]) -> bytes:
        """The ExportTraceServiceRequest that exports these spans."""
        spans = b"".join([_field(b"\x12", _span(span)) for span in batch])
        return _field(b"\x0a", self._resource + _field(b"\x12", self._scope + spans))


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + _length(len(value)) + value


def _length(number: int) -> bytes:
    """A length in base 128, the lowest digits first (protobuf, "varint")."""
    digits = bytearray()
    while number >= _ONE_BYTE:
        digits.append(number & 0x7F | _ONE_BYTE)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _span(span: RequestSpan) -> bytes:
    sort = span.sort
    ids = bytes.fromhex(span.trace_id + span.span_id + span.parent_id)
    trace_id, span_id, parent_id = ids[:16], ids[16:24], ids[24:]
    # Of a client's request the parent is in another program, of one to an upstream it is here.
    flags = span.flags | _PARENT_KNOWN | (0 if sort.client or not parent_id else _PARENT_REMOTE)
    times = _STARTED, span.started, _ENDED, span.ended, _FLAGS, flags
    if parent_id:
        numbers = _NUMBERS(_TRACE, trace_id, _SPAN, span_id, _PARENT, parent_id, *times)
    else:
        numbers = _ROOT_NUMBERS(_TRACE, trace_id, _SPAN, span_id, *times)
    encoded = (sort.encoded or _encoded(sort)) + numbers
    if span.request_id is not None:
        encoded += _id(str(span.request_id))
    return encoded if span.extras is None else encoded + _rare(span.extras)


# Both spans of a call have the same one, and clients count from 1.
@lru_cache(maxsize=1024)
def _id(text: str) -> bytes:
    """The attribute ``jsonrpc.request.id``."""
    encoded: bytes = otlp.Span(attributes=_pairs({"jsonrpc.request.id": text})).SerializeToString()
    return encoded


def _rare(extras: Extras) -> bytes:
    """The part of a span that most do not have."""
    message = otlp.Span(attributes=_pairs(extras.attributes))
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
    encoded: bytes = message.SerializeToString()
    return encoded


def _encoded(sort: SpanSort) -> bytes:
    """The part of a span that all of its sort have in common."""
    kind = otlp.Span.SPAN_KIND_CLIENT if sort.client else otlp.Span.SPAN_KIND_SERVER
    message = otlp.Span(name=_text(sort.name), kind=kind, attributes=_pairs(dict(sort.attributes)))
    sort.encoded = message.SerializeToString()
    return sort.encoded


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
