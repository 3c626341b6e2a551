"""Event streams cross the adapter byte for byte, and each byte at once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import (
    Exchange,
    answering,
    call_body,
    event,
    in_events,
    in_two,
    read_body,
    read_chunk,
    result,
)

ODD_STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\n"
    b"id: 0/\xc3\xa9\r\nretry: 250\r\ndata:\r\n\r\n"
    b"event:message\rid:1\rdata:{\"jsonrpc\":\"2.0\",\rdata: \"method\":\"notifications/progress\",\r"
    b"data:  \"params\":{\"progressToken\":1.0,\"progress\":0.10}}\r\r"
    b"event: vendor\nfoo: bar\nignored\ndata: not json\n\n"
    b": keep-alive\n\n\n\n"
    b'data: {"jsonrpc":"2.0","id":1.0,"method":"sampling/createMessage","params":{"x":1E2}}\n\n'
    b"retry: soon\nid\ndata: [ 1 ,2]x\n\n"
    b'id: last\ndata: {"id" : 1,"result":{"big":123456789012345678901234567890},\ndata: "jsonrpc":"2.0"}\n\n'
    b": after the answer\n\ndata: \xff\xfe tail without an end"
)  # fmt: skip
"""Comments, CR, LF and CRLF, a byte order mark, ids, retry, unknown fields and types, data on several lines."""


async def test_odd_stream_keeps_its_bytes_in_whatever_slices_it_comes(in_session: StartRoad) -> None:
    """Cut in two at every byte: the client has the first part before the second is sent, and then the whole."""
    has_first = asyncio.Event()
    async with in_session() as (up, _, client):
        for cut in range(1, len(ODD_STREAM)):
            up.script = in_two(has_first, ODD_STREAM[:cut], ODD_STREAM[cut:])
            has_first.clear()
            await client.send("POST", call_body(number=1))
            head = await client.head()
            assert head["content-type"] == "text/event-stream"
            first = await client.read_until(cut)
            assert first == ODD_STREAM[:cut]
            has_first.set()
            assert first + await read_body(client.reader, head) == ODD_STREAM
        assert len(up.calls("tools/call")) == len(ODD_STREAM) - 1


async def test_stream_that_its_upstream_ends_by_closing(in_session: StartRoad) -> None:
    """An upstream of HTTP/1.0 habits, without chunks or length, is relayed in the same bytes."""

    async def script(exchange: Exchange) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=UTF-8\r\nConnection: close\r\n\r\n"
        )
        await exchange.send(head + ODD_STREAM)
        exchange.writer.close()

    async with in_session(script) as (_, _, client):
        head, body = await client.call()
        assert body == ODD_STREAM
        assert head["content-type"] == "Text/Event-Stream; charset=UTF-8"


async def test_server_asks_in_the_middle_of_a_call_and_is_answered(in_session: StartRoad) -> None:
    """An elicitation crosses on the call's stream, its answer by another POST, and the call goes on."""
    question = b'{"jsonrpc":"2.0", "id":1.0,"method":"elicitation/create","params":{"message":"\\u00fc?"}}'
    reply = b'{"jsonrpc":"2.0","id":1.0,"result":{"action":"accept", "content":{"n":1.50}}}'
    answered = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if "method" not in exchange.message:
            assert exchange.body == reply
            assert exchange.head["mcp-session-id"] == "upstream-1"
            answered.set()
            await exchange.answer(202, b"")
            return
        await exchange.begin_stream()
        await exchange.chunk(event(question))
        await answered.wait()
        await exchange.chunk(event(result(1)))
        await exchange.end_stream()

    async with in_session(script) as (_, front, client), front.client() as other:
        other.session = client.session
        await client.send("POST", call_body())
        head = await client.head()
        assert await read_chunk(client.reader) == event(question)
        accepted, _ = await other.request("POST", reply)
        assert accepted.status == 202
        assert await read_body(client.reader, head) == event(result(1))


async def test_get_stream_carries_everything_and_its_last_event_id(in_session: StartRoad) -> None:
    """A GET reaches the upstream with Last-Event-ID, and its events come back as they are sent, at once."""
    has_first = asyncio.Event()
    script = in_two(has_first, ODD_STREAM[:10], ODD_STREAM[10:])
    async with in_session(script) as (up, _, client):
        await client.send("GET", last_event_id="0/opaque; =?", accept="text/event-stream")
        head = await client.head()
        first = await client.read_until(10)
        assert first == ODD_STREAM[:10]
        has_first.set()
        assert first + await read_body(client.reader, head) == ODD_STREAM
        asked = up.calls("GET")[0].head
        assert asked["last-event-id"] == "0/opaque; =?"
        assert asked["mcp-session-id"] == "upstream-1"
        assert asked["accept"] == "text/event-stream"


async def test_silent_get_stream_shows_its_head_at_once_and_closes_with_its_client(
    in_session: StartRoad,
) -> None:
    """The head of a GET stream does not wait for an event; when the client goes, the upstream is told."""
    closed = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream("Cache-Control: no-cache", "X-Accel-Buffering: no")
        await exchange.gone()
        closed.set()

    async with in_session(script) as (_, _, client):
        await client.send("GET")
        head = await client.head()
        assert head.status == 200
        assert head["cache-control"] == "no-cache" and head["x-accel-buffering"] == "no"
        client.close()
        async with asyncio.timeout(8):
            await closed.wait()


async def test_get_that_the_upstream_does_not_offer(in_session: StartRoad) -> None:
    """405 of the upstream is what the client gets, with its Allow and its words."""

    script = answering(405, b"Method Not Allowed", "Allow: POST, DELETE", "Content-Type: text/plain")

    async with in_session(script) as (_, _, client):
        head, body = await client.request("GET")
        assert (head.status, body, head["allow"]) == (405, b"Method Not Allowed", "POST, DELETE")


async def test_stream_that_polls_is_passed_on_and_continued_by_the_client(in_session: StartRoad) -> None:
    """A clean end after an event id is the upstream's way to say "come back": nothing is added to it."""
    begun = b"id: 1/0\nretry: 10\ndata:\n\n"

    async def script(exchange: Exchange) -> None:
        await exchange.stream(begun if exchange.head.method == "POST" else event(result(1), "1/1"))

    async with in_session(script) as (up, _, client):
        _, body = await client.call()
        assert body == begun
        _, body = await client.request("GET", last_event_id="1/0")
        assert body == event(result(1), "1/1")
        assert [each.head.get("last-event-id") for each in up.calls("GET")] == ["1/0"]


async def test_event_of_five_mebibytes(in_session: StartRoad) -> None:
    """No event is too large to be relayed, and what follows it on the stream comes too."""
    large = event(result(1, "x" * (5 << 20)), "big") + b": done\n\n"
    script = in_events(*(large[start : start + (1 << 16)] for start in range(0, len(large), 1 << 16)))
    async with in_session(script) as (_, _, client):
        _, body = await client.call()
        assert body == large


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_client_that_does_not_read_slows_its_upstream(in_session: StartRoad, method: str) -> None:
    """The adapter holds little of a stream: with nobody reading, the upstream's own writing comes to a halt."""
    filler = b": " + b"x" * 65532 + b"\n\n"
    sent = 0
    progress = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.begin_stream()
        while True:
            await exchange.chunk(filler)
            sent += len(filler)
            progress.set()

    async def halted() -> int:
        with contextlib.suppress(TimeoutError):
            while True:
                progress.clear()
                async with asyncio.timeout(0.2):
                    await progress.wait()
        return sent

    async with in_session(script) as (_, _, client):
        await client.send(method, call_body() if method == "POST" else b"")
        await client.head()
        client.stop_reading()
        # What is sent by then lies in the sockets' buffers, which the kernel lets grow to some megabytes each.
        at_halt = await halted()
        assert at_halt < 32 << 20
        client.read_on()
        await client.read_until(at_halt)
        assert sent > at_halt
