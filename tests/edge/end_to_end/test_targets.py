"""The target of a request: its query reaches the upstream, and its authority is the Host's or nobody's."""

from __future__ import annotations

import asyncio

import pytest

from tests.edge.conftest import Adapter, StartAdapter, StartRoad, StartUpstream
from tests.edge.raw import INITIALIZE, Exchange, call_body, error_of, in_json, read_body, read_head, result


async def test_the_query_reaches_the_upstream_behind_its_own(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """With every request of a session, whatever its method; one that brings none sends none."""

    async with upstream(in_json(result(1))) as up:
        server = {"upstream": {"url": up.url + "?key=k"}}
        async with adapter(up, server=server) as front, front.client() as client:
            head, _ = await client.request("POST", INITIALIZE, "/mcp?team=a&x=%20")
            client.session = head["mcp-session-id"]
            await client.request("POST", call_body(), '/mcp?q="<b>"#part')
            await client.request("POST", call_body())
            await client.request("GET", b"", "/mcp?listen")
            await client.request("DELETE", b"", "/mcp?bye=1")
            assert [each.head.first for each in up.seen] == [
                "POST /mcp?key=k&team=a&x=%20 HTTP/1.1",
                "POST /mcp?key=k&q=%22%3Cb%3E%22 HTTP/1.1",
                "POST /mcp?key=k HTTP/1.1",
                "GET /mcp?key=k&listen HTTP/1.1",
                "DELETE /mcp?key=k&bye=1 HTTP/1.1",
            ]


async def test_a_renewed_session_is_opened_with_the_query_of_the_call(in_session: StartRoad) -> None:
    """An upstream that tells its users apart by it would not know the replay otherwise."""
    async with in_session() as (up, _, client):
        up.sessions.clear()
        _, body = await client.request("POST", call_body(), "/mcp?team=a")
        assert body == result(1)
        assert {each.head.first for each in up.seen[1:]} == {"POST /mcp?team=a HTTP/1.1"}


async def test_a_query_that_is_too_long_is_414(in_session: StartRoad) -> None:
    """It names the limit, and the upstream hears nothing."""
    async with in_session() as (up, _, client):
        head, body = await client.request("POST", call_body(), "/mcp?" + "a" * 9000)
        assert head.status == 414 and "8192" in error_of(body)["message"]
        assert len(up.seen) == 1


async def asked(front: Adapter, target: str, host: str) -> int:
    """The status of an initialize with this target and Host."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(INITIALIZE) + INITIALIZE)
    answer = await read_head(reader)
    await read_body(reader, answer)
    writer.transport.abort()
    return answer.status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://127.0.0.1:{port}/mcp", "127.0.0.1:{port}", 200),
        ("http://127.0.0.1:1/mcp", "127.0.0.1:{port}", 421),
        ("http://evil.example/mcp", "evil.example", 421),
        ("http:///mcp", "127.0.0.1:{port}", 421),
    ],
)
async def test_an_absolute_target_is_served_where_it_names_the_host(
    road: StartRoad, target: str, host: str, status: int
) -> None:
    """The target's authority counts (RFC 9112, 3.2.2), so none may slip past the check of the Host beside it."""
    async with road() as (up, front, _):
        assert await asked(front, target.format(port=front.port), host.format(port=front.port)) == status
        assert len(up.seen) == (status == 200)


async def test_a_query_is_the_requests_alone(in_session: StartRoad) -> None:
    """Requests with the same header fields, on one connection, keep their own."""

    async def script(exchange: Exchange) -> None:
        await exchange.json(result(1, exchange.head.first))

    async with in_session(script) as (_, _, client):
        for number in range(3):
            _, body = await client.request("POST", call_body(), f"/mcp?n={number}")
            assert f"/mcp?n={number} ".encode() in body
