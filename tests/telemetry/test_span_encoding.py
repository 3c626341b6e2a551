"""Spans of requests in OTLP, read again by the library that OpenTelemetry generates."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource

from adapter.telemetry.request_spans import RequestSpan, SpanSort, UpstreamSpan
from adapter.telemetry.span_encoding import SpanEncoding
from tests.telemetry.collectors import values

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SORT = SpanSort("tools/call tool", (("mcp.method.name", "tools/call"), ("server.id", "raw")), client=False)
OUTGOING = SpanSort("tools/call tool", (("server.port", 80), ("odd", "\ud800")), client=True)

encoding = SpanEncoding(Resource({"service.name": "test", "host.cpus": 2}), "scope")


def decoded(*spans: RequestSpan) -> list[Span]:
    for span in spans:
        span.ended = span.started + 5
    request = ExportTraceServiceRequest.FromString(encoding(spans))
    (group,) = request.resource_spans
    (scope,) = group.scope_spans
    assert values(group.resource.attributes) == {"service.name": "test", "host.cpus": 2}
    assert scope.scope.name == "scope"
    return list(scope.spans)


def test_a_call_has_two_spans() -> None:
    """Ids, times, kinds and attributes; the parent of the first is in another program, that of the second is here."""
    server = RequestSpan(SORT, TRACE, PARENT, 1, 7)
    client = UpstreamSpan(server, OUTGOING, "seven")
    first, second = decoded(server, client)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert (second.trace_id, second.parent_span_id) == (first.trace_id, first.span_id)
    assert client.traceparent == f"00-{TRACE}-{second.span_id.hex()}-01"
    assert (first.kind, second.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    assert (first.flags, second.flags) == (0x301, 0x101)
    assert first.name == "tools/call tool"
    assert first.start_time_unix_nano == server.started and first.end_time_unix_nano == server.started + 5
    assert values(first.attributes) == {
        "mcp.method.name": "tools/call",
        "server.id": "raw",
        "jsonrpc.request.id": "7",
    }
    assert values(second.attributes) == {"server.port": 80, "odd": "?", "jsonrpc.request.id": "seven"}
    assert first.status.code == Status.STATUS_CODE_UNSET


def test_what_few_spans_have_is_there_too() -> None:
    """An error with its code, attributes of every type, events and a link; the first failure counts."""
    span = RequestSpan(SORT, TRACE, "", 1, None)
    span.fail("-32602", "bad_params")
    span.fail("cut")
    span.set_attribute("tool.kind", "hosted")
    for key, value in (("flag", True), ("number", 3), ("large", 1 << 70), ("part", 0.5)):
        span.set_attribute(key, value)
    span.add_event("exception", {"exception.type": "ValueError"})
    span.link((TRACE, PARENT, 1))
    (found,) = decoded(span)
    assert (found.parent_span_id, found.flags) == (b"", 0x101)
    assert (found.status.code, found.status.message) == (Status.STATUS_CODE_ERROR, "bad_params")
    told = values(found.attributes)
    assert (told["error.type"], told["rpc.response.status_code"]) == ("-32602", "-32602")
    assert (told["tool.kind"], told["flag"], told["number"]) == ("hosted", True, 3)
    assert (told["large"], told["part"]) == (str(1 << 70), 0.5)
    assert [(event.name, values(event.attributes)) for event in found.events] == [
        ("exception", {"exception.type": "ValueError"})
    ]
    assert [link.span_id.hex() for link in found.links] == [PARENT]


def test_what_others_add_is_bounded() -> None:
    """Attributes and events of stages and of tools above the limit are left out."""
    span = RequestSpan(SORT, TRACE, "", 1, None)
    for number in range(100):
        span.set_attribute(f"key{number}", number)
        span.add_event("event", {})
    (found,) = decoded(span)
    assert (len(found.attributes), len(found.events)) == (2 + 32, 8)


@given(st.lists(st.tuples(st.text(max_size=400), st.text(max_size=80)), max_size=40))
def test_any_number_of_spans_of_any_length_is_one_message(names: list[tuple[str, str]]) -> None:
    """Lengths of one byte and of more."""
    spans = deque[RequestSpan]()
    for name, request_id in names:
        spans.append(RequestSpan(SpanSort(name, (), client=False), TRACE, PARENT, 1, request_id))
    found = decoded(*spans)
    assert [(span.name, values(span.attributes)["jsonrpc.request.id"]) for span in found] == names
