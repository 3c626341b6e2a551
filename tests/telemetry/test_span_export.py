"""Spans of requests in OTLP, read again by the library that OpenTelemetry generates, and collectors of every mood."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from adapter.telemetry.request_spans import RequestSpan, SpanSort, UpstreamSpan
from adapter.telemetry.span_export import CollectorExporter, GrpcSender, HttpSender, SpanSender
from tests.telemetry.collectors import grpc_collector, http_collector, values

RESOURCE = Resource({"service.name": "test", "host.cpus": 2})


def exporter(sender: SpanSender, is_open: Callable[[], bool] = lambda: True) -> CollectorExporter:
    return CollectorExporter(RESOURCE, "scope", sender, is_open, timeout=5)


class Scripted:
    """A sender that keeps what it sends, and passes it on; it fails as often as it is told to."""

    def __init__(self, sender: SpanSender | None = None, failures: int = 0) -> None:
        self.sent: list[bytes] = []
        self._failures = failures
        self._sender = sender

    def send(self, request: bytes, within: float) -> bool:
        assert 0 < within <= 5
        self.sent.append(request)
        if len(self.sent) <= self._failures:
            return False
        return self._sender is None or self._sender.send(request, within)

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SORT = SpanSort("tools/call tool", (("mcp.method.name", "tools/call"), ("server.id", "raw")), client=False)
OUTGOING = SpanSort("tools/call tool", (("server.port", 80), ("odd", "\ud800")), client=True)


def decoded(*spans: RequestSpan) -> list[Span]:
    for span in spans:
        span.ended = span.started + 5
    request = ExportTraceServiceRequest.FromString(exporter(Scripted()).encoded(spans))
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


def ended(number: int) -> RequestSpan:
    span = RequestSpan(SORT, f"{number:032x}", "", 1, number)
    span.ended = span.started
    return span


SPANS = exporter(Scripted()).encoded([ended(1)])


def test_nothing_is_sent_when_the_time_is_over() -> None:
    """A gate that is shut ends the exports."""
    sender = Scripted()
    exporter(sender, lambda: False).export([ended(1)])
    assert sender.sent == []


async def test_a_batch_is_tried_again() -> None:
    """After a failure that may pass, within the time of one export."""
    async with http_collector() as collector:
        sender = Scripted(HttpSender(f"{collector.url}/v1/traces", {"x-tenant": "a"}), failures=1)
        exports = exporter(sender)
        assert await asyncio.to_thread(exports.export, (ended(1), ended(2))) is SpanExportResult.SUCCESS
        exports.shutdown()
    assert len(sender.sent) == 2
    assert len(collector.spans()) == 2
    assert collector.fields("/v1/traces")["x-tenant"] == "a"


async def test_spans_of_the_sdk_go_the_same_way() -> None:
    """In one export with those of requests, as of the same resource."""
    recorded: list[ReadableSpan] = []
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Kept(recorded)))
    with provider.get_tracer("stages").start_as_current_span("stage.auth"):
        pass
    request = ExportTraceServiceRequest.FromString(exporter(Scripted()).encoded([ended(1), *recorded]))
    (group,) = request.resource_spans
    names = [(scope.scope.name, [span.name for span in scope.spans]) for scope in group.scope_spans]
    assert names == [("scope", ["tools/call tool"]), ("stages", ["stage.auth"])]


class Kept(SpanExporter):
    """Keeps what it is to export."""

    def __init__(self, spans: list[ReadableSpan]) -> None:
        self._spans = spans

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._spans += spans
        return SpanExportResult.SUCCESS


def test_nothing_is_tried_again_at_the_end() -> None:
    """Whoever stops the adapter waits for one attempt."""
    sender = Scripted(failures=9)
    exports = exporter(sender)
    exports.end()
    assert exports.export([ended(1)]) is SpanExportResult.FAILURE
    assert len(sender.sent) == 1


async def test_spans_go_over_grpc() -> None:
    """With the header fields as metadata."""
    async with grpc_collector() as collector:
        sender = GrpcSender(collector.url.removeprefix("http://"), {"x-tenant": "a"}, insecure=True)
        assert await asyncio.to_thread(sender.send, SPANS, 5)
        sender.close()
    assert len(collector.spans()) == 1
    assert collector.fields("traces")["x-tenant"] == "a"


@pytest.mark.parametrize(
    ("answer", "delivered"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
        (b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 302 There\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n" + b"x" * 200_000, True),
        (b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", True),
        (b"SSH-2.0-nonsense\r\n", False),
        (b"", False),
    ],
)
async def test_hostile_collectors_are_survived(answer: bytes, delivered: bool) -> None:
    """No answer is followed, kept or read to an end that never comes, and none raises."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        # A connection that is closed with bytes unread is reset, and its answer may be lost.
        length = head.lower().partition(b"content-length: ")[2].split()[0]
        await reader.readexactly(int(length))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        sender = HttpSender(f"http://127.0.0.1:{port}/v1/traces", {})
        sent = await asyncio.to_thread(sender.send, SPANS, 2)
        sender.close()
    assert sent is delivered


async def test_nobody_listens() -> None:
    """Over HTTP and over gRPC the batch may be sent again."""
    for sender in (
        HttpSender("http://127.0.0.1:9/v1/traces", {}),
        GrpcSender("127.0.0.1:9", {}, insecure=True),
    ):
        assert not await asyncio.to_thread(sender.send, SPANS, 0.5)
        sender.close()
