"""``initialize`` in every shape an upstream may answer it in."""

from __future__ import annotations

import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import INITIALIZE, Exchange, accepted, event, initialize_result, result

LOG = event(b'{"jsonrpc":"2.0", "method":"notifications/message","params":{"level":"info","data":1.0}}')


async def answered(exchange: Exchange) -> None:
    """Answers a call, and only under the session that the opening named."""
    assert exchange.head["mcp-session-id"] == "theirs"
    await exchange.json(result(1))


async def test_opening_as_a_stream_keeps_its_bytes(road: StartRoad) -> None:
    """An event stream with comments and messages before the result leaves as it came, and mints a session."""
    said = b": hi\r\n\r\nretry: 5\r\n\r\n" + LOG + event(initialize_result(0), "0/1")

    async def opening(exchange: Exchange) -> None:
        await exchange.begin_stream("Mcp-Session-Id: theirs")
        for place in range(len(said)):
            await exchange.chunk(said[place : place + 1])
        await exchange.end_stream()

    async with road(answered, opening=opening) as (up, _, client):
        up.sessions.add("theirs")
        head, body = await client.request("POST", INITIALIZE)
        assert body == said and head["content-type"] == "text/event-stream"
        client.session = head["mcp-session-id"]
        assert client.session != "theirs"
        _, body = await client.call()
        assert body == result(1)


@pytest.mark.parametrize("broken", [False, True])
async def test_opening_that_polls_is_followed_by_the_adapter(road: StartRoad, broken: bool) -> None:
    """The result comes on a later GET: the client, who has no session yet, gets it all as one answer.

    It makes no difference whether the upstream ended the stream or lost it.
    """
    streams = [
        b"id: 0/0\nretry: 1\ndata:\n\n",
        LOG + b"id: 0/1\ndata:\n\n",
        event(initialize_result(0), "0/2"),
    ]

    async def piece(exchange: Exchange) -> None:
        number = len(up.calls("GET"))
        assert exchange.head.get("last-event-id") == (f"0/{number - 1}" if number else None)
        await exchange.begin_stream("Mcp-Session-Id: theirs")
        await exchange.chunk(streams[number])
        if broken and number < 2:
            exchange.writer.close()
        else:
            await exchange.end_stream()

    async def script(exchange: Exchange) -> None:
        assert exchange.head["mcp-session-id"] == "theirs"
        await (piece(exchange) if exchange.head.method == "GET" else answered(exchange))

    async with road(script, opening=piece) as (up, _, client):
        up.sessions.add("theirs")
        head, body = await client.request("POST", INITIALIZE)
        assert head.status == 200 and body == b"".join(streams)
        client.session = head["mcp-session-id"]
        _, body = await client.call()
        assert body == result(1)
        assert up.opened == 0 and len(up.calls("initialize")) == 1


async def test_initialized_notification_is_sent_as_the_client_sent_it_also_when_replayed(
    road: StartRoad,
) -> None:
    """A renewed session is opened with the client's own bytes, of initialize and of what followed it."""
    asked = b'{"id":"\\u0061","jsonrpc":"2.0","method":"initialize", "params":{"x":1.0,"capabilities":{}}}'
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized","params":{"_meta":{"x":1.0}}}'
    async with road(hearing=accepted) as (up, _, client):
        head, _ = await client.request("POST", asked)
        client.session = head["mcp-session-id"]
        await client.request("POST", note)
        up.sessions.clear()
        _, body = await client.call()
        assert body == result(1)
        assert [each.body for each in up.calls("initialize")] == [asked, asked]
        assert [each.body for each in up.calls("notifications/initialized")] == [note, note]
