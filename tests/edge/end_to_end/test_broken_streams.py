"""Event streams that do not come to their end: resumed where that is possible, else ended with an error."""

from __future__ import annotations

import asyncio

import pytest

from adapter.wire.sse import SseReader
from tests.edge.conftest import StartRoad
from tests.edge.raw import (
    Exchange,
    RawClient,
    Script,
    call_body,
    error_of,
    event,
    in_events,
    modern_body,
    modern_fields,
    read_chunk,
    result,
)

PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}'


def messages(stream: bytes) -> list[bytes]:
    """What a client dispatches: the data of events of type "message"."""
    events = SseReader(1 << 24).feed(stream)
    return [each.data for each in events if each.data and each.event == b"message"]


async def read_until(client: RawClient, end: bytes) -> bytes:
    """The body so far, as soon as it ends with ``end``."""
    body = b""
    while not body.endswith(end):
        chunk = await read_chunk(client.reader)
        assert chunk, body
        body += chunk
    return body


async def read_rest(client: RawClient) -> bytes:
    body = b""
    while chunk := await read_chunk(client.reader):
        body += chunk
    return body


def breaking(beginning: bytes, received: asyncio.Event) -> Script:
    """Answers with ``beginning`` and breaks off when the client has it; whoever resumes is refused."""

    async def script(exchange: Exchange) -> None:
        if exchange.head.method == "GET":
            await exchange.answer(405, b"")
            return
        await exchange.begin_stream()
        await exchange.chunk(beginning)
        await received.wait()
        exchange.break_off()

    return script


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_broken_stream_ends_with_an_error_event(in_session: StartRoad, era: str) -> None:
    """Between two events: what came stays as it was, then the error under the id, then a proper end."""
    received = asyncio.Event()
    script = breaking(event(PROGRESS), received)
    async with in_session(script) as (up, _, client):
        fields = modern_fields() if era == "modern" else {}
        await client.send("POST", modern_body(number=7) if fields else call_body(number=7), **fields)
        assert (await client.head()).status == 200
        assert await read_until(client, b"\n\n") == event(PROGRESS)
        received.set()
        error = error_of(messages(await read_rest(client))[0])
        assert error["code"] == -32011 and error["id"] == 7
        assert len(up.calls("tools/call")) == 1 and up.calls("GET") == []


@pytest.mark.parametrize(
    "torn",
    [
        b'data: {"jsonrpc":"2.0","id":7,"result":{"conte',
        b"data: " + result(7),
        b"data: " + result(7) + b"\n",
        b"id: 2\ndata: " + result(7)[:-1] + b"\ndata",
        b"event: mess",
    ],
    ids=["in-data", "before-line-end", "before-blank-line", "between-lines", "in-type"],
)
async def test_torn_event_is_never_dispatched(in_session: StartRoad, torn: bytes) -> None:
    """In the middle of an event: its beginning cannot be taken back, but no client takes it for a message."""
    received = asyncio.Event()
    script = breaking(event(PROGRESS) + torn, received)
    async with in_session(script) as (_, _, client):
        await client.send("POST", call_body(number=7))
        await client.head()
        body = await read_until(client, torn)
        received.set()
        told = messages(body + await read_rest(client))
        assert told[0] == PROGRESS and len(told) == 2
        assert error_of(told[1])["code"] == -32011 and error_of(told[1])["id"] == 7


@pytest.mark.parametrize("torn", [b"", b'id: 8\ndata: {"jsonrpc":"2.0","id":1,"res'])
async def test_broken_stream_with_event_ids_is_resumed_once(in_session: StartRoad, torn: bytes) -> None:
    """The adapter asks for what comes after the last whole event, and the client sees one stream."""
    received = asyncio.Event()
    begin = breaking(event(PROGRESS, "7") + torn, received)

    async def script(exchange: Exchange) -> None:
        if exchange.head.method == "POST":
            await begin(exchange)
            return
        await exchange.stream(event(result(1), "8"))

    async with in_session(script) as (up, _, client):
        await client.send("POST", call_body())
        await client.head()
        body = await read_until(client, torn or b"\n\n")
        received.set()
        assert messages(body + await read_rest(client)) == [PROGRESS, result(1)]
        (resumed,) = up.calls("GET")
        assert resumed.head["last-event-id"] == "7"
        assert resumed.head["mcp-session-id"] == "upstream-1"
        assert resumed.head.get("content-type") is None
        assert len(up.calls("tools/call")) == 1


async def test_stream_that_breaks_again_ends_with_an_error_event(in_session: StartRoad) -> None:
    """One resumption is what an answer gets."""
    received, again = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        if exchange.head.method == "POST":
            await exchange.chunk(event(PROGRESS, "7"))
            await received.wait()
        else:
            await exchange.chunk(event(PROGRESS, "8"))
            await again.wait()
        exchange.break_off()

    async with in_session(script) as (up, _, client):
        await client.send("POST", call_body(number=7))
        await client.head()
        await read_until(client, event(PROGRESS, "7"))
        received.set()
        await read_until(client, event(PROGRESS, "8"))
        again.set()
        (told,) = messages(await read_rest(client))
        assert error_of(told)["code"] == -32011 and error_of(told)["id"] == 7
        assert len(up.calls("GET")) == 1


async def test_refused_resumption_ends_with_an_error_event(in_session: StartRoad) -> None:
    """An upstream that numbers its events and cannot replay them is a broken one."""
    received = asyncio.Event()
    script = breaking(event(PROGRESS, "7"), received)
    async with in_session(script) as (_, _, client):
        await client.send("POST", call_body(number=7))
        await client.head()
        await read_until(client, b"\n\n")
        received.set()
        (told,) = messages(await read_rest(client))
        assert error_of(told)["code"] == -32011 and error_of(told)["id"] == 7


async def test_modern_stream_is_not_resumed(road: StartRoad) -> None:
    """The modern era has no Last-Event-ID, so an event id means nothing there."""
    received = asyncio.Event()
    script = breaking(event(PROGRESS, "7"), received)
    async with road(script) as (up, _, client):
        await client.send("POST", modern_body(), **modern_fields())
        await client.head()
        await read_until(client, b"\n\n")
        received.set()
        assert error_of(messages(await read_rest(client))[0])["code"] == -32011
        assert up.calls("GET") == []


@pytest.mark.parametrize("beginning", [b": nothing yet\n\n", event(PROGRESS), b"data: " + result(7)[:20]])
async def test_clean_end_without_an_answer_is_an_error_event(in_session: StartRoad, beginning: bytes) -> None:
    """Without an event id nobody could come back for the answer, so it is failed rather than waited for."""
    async with in_session(in_events(beginning)) as (_, _, client):
        head, body = await client.call(number=7)
        assert head.status == 200 and body.startswith(beginning)
        told = messages(body)
        assert told[:-1] == ([PROGRESS] if PROGRESS in beginning else [])
        assert error_of(told[-1])["code"] == -32011 and error_of(told[-1])["id"] == 7


async def test_get_stream_just_ends_when_the_upstreams_does(in_session: StartRoad) -> None:
    """Nobody waits for an answer on it, so there is no error to tell: a client opens another."""
    received = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event(PROGRESS))
        await received.wait()
        exchange.break_off()

    async with in_session(script) as (_, _, client):
        await client.send("GET")
        await client.head()
        assert await read_until(client, b"\n\n") == event(PROGRESS)
        received.set()
        assert await read_rest(client) == b""
