"""Spans of requests on their way to collectors of every mood."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from opentelemetry.sdk.resources import Resource

from adapter.telemetry.request_spans import RequestSpan, SpanSort
from adapter.telemetry.span_encoding import SpanEncoding
from adapter.telemetry.span_export import GrpcSender, HttpSender, SpanQueue, SpanSender
from tests.telemetry.collectors import grpc_collector, http_collector

SORT = SpanSort("ping", (), client=False)

encoding = SpanEncoding(Resource({}), "scope")


def ended(number: int) -> RequestSpan:
    span = RequestSpan(SORT, f"{number:032x}", "", 1, number)
    span.ended = span.started
    return span


def queue(sender: SpanSender, is_open: Callable[[], bool] = lambda: True, every: float = 3600) -> SpanQueue:
    return SpanQueue(encoding, sender, is_open, most=5, batch=2, every=every, timeout=5)


class Scripted:
    """A sender that keeps what it sends, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[bytes] = []
        self.failures = failures
        self.closed = False

    def send(self, request: bytes, within: float) -> bool:
        assert 0 < within <= 5
        if self.failures:
            self.failures -= 1
            return False
        self.sent.append(request)
        return True

    def close(self) -> None:
        self.closed = True


def test_the_oldest_spans_are_dropped() -> None:
    """While nobody wakes the thread no more wait than the limit, and at the end the youngest are sent."""
    sender = Scripted()
    waiting = queue(sender)
    for number in range(1, 9):
        waiting.spans.append(ended(number))
    assert repr(waiting) == "<SpanQueue: 5 wait>"
    waiting.shutdown(1)
    assert len(sender.sent) == 3 and sender.closed
    assert bytes.fromhex(f"{4:032x}") in sender.sent[0] and bytes.fromhex(f"{8:032x}") in sender.sent[-1]
    assert bytes.fromhex(f"{3:032x}") not in b"".join(sender.sent)


def test_nothing_is_sent_when_the_time_is_over() -> None:
    """A gate that is shut ends the exports."""
    sender = Scripted()
    waiting = queue(sender, lambda: False)
    waiting.spans.append(ended(1))
    waiting.wake()
    waiting.shutdown(1)
    assert sender.sent == []


async def test_a_batch_is_tried_again() -> None:
    """After a failure that may pass, within the time of one export."""
    async with http_collector() as collector:
        sender = Failing(HttpSender(f"{collector.url}/v1/traces", {"x-tenant": "a"}))
        waiting = queue(sender)
        waiting.spans.extend((ended(1), ended(2)))
        waiting.wake()
        await asyncio.wait_for(collector.arrived.wait(), 10)
        await asyncio.to_thread(waiting.shutdown, 1)
    assert sender.tried == 2
    assert len(collector.spans()) == 2
    assert collector.fields("/v1/traces")["x-tenant"] == "a"


class Failing:
    """A sender whose first attempt fails."""

    def __init__(self, sender: SpanSender) -> None:
        self._sender = sender
        self.tried = 0

    def send(self, request: bytes, within: float) -> bool:
        self.tried += 1
        return self.tried > 1 and self._sender.send(request, within)

    def close(self) -> None:
        self._sender.close()


async def test_spans_go_over_grpc() -> None:
    """With the header fields as metadata."""
    async with grpc_collector() as collector:
        sender = GrpcSender(collector.url.removeprefix("http://"), {"x-tenant": "a"}, insecure=True)
        assert await asyncio.to_thread(sender.send, encoding([ended(1)]), 5)
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
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        sender = HttpSender(f"http://127.0.0.1:{port}/v1/traces", {})
        sent = await asyncio.to_thread(sender.send, encoding([ended(1)]), 2)
        sender.close()
    assert sent is delivered


async def test_nobody_listens() -> None:
    """Over HTTP and over gRPC the batch may be sent again."""
    for sender in (
        HttpSender("http://127.0.0.1:9/v1/traces", {}),
        GrpcSender("127.0.0.1:9", {}, insecure=True),
    ):
        assert not await asyncio.to_thread(sender.send, encoding([ended(1)]), 0.5)
        sender.close()
