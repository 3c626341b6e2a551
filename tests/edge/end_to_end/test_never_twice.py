"""Requests that may have run are sent once: the server read them and closed its connection without a byte."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, RawClient, RawUpstream, call_body, error_of, result

TOOLS = [
    {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "set", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": True}},
    {"name": "write", "inputSchema": {"type": "object"}},
]
LIST = b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}'
WARN = {"tool_definition_pinning": {"mode": "warn"}}


class Closing:
    """An upstream's script that reads the next request of ``method`` and closes; everything else it answers."""

    def __init__(self) -> None:
        self.method: str | None = None

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        method = message.get("method", exchange.head.method)
        if method == self.method or (not message and self.method == "batch"):
            self.method = None
            exchange.hang_up()
        elif method == "tools/list":
            await exchange.json(
                orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": TOOLS}})
            )
        elif method == "GET":
            await exchange.stream()
        elif not message:
            await exchange.json(b"[" + result(1) + b"," + result(2) + b"]")
        else:
            await exchange.json(result(message["id"]))


def calls(up: RawUpstream, name: str) -> int:
    """How often that tool was called."""
    seen: list[Any] = [each.message for each in up.calls("tools/call")]
    return sum(message["params"]["name"] == name for message in seen)


async def warmed(client: RawClient) -> None:
    """Open a session, and have it see the list of tools; the adapter then keeps a connection to the upstream."""
    await client.initialize()
    head, body = await client.request("POST", LIST)
    assert head.status == 200 and b'"write"' in body


@asynccontextmanager
async def warm(road: StartRoad, closes: str, **sections: Any) -> AsyncIterator[tuple[RawUpstream, RawClient]]:
    """A client that has seen the list of tools, before a server that closes at the next request of ``closes``."""
    script = Closing()
    async with road(script, **sections) as (up, _, client):
        await warmed(client)
        script.method = closes
        yield up, client


@pytest.mark.parametrize("name", ["write", "unheard-of"])
async def test_call_that_may_have_run_is_an_error(road: StartRoad, name: str) -> None:
    """The client is told that the call may have run; the next call goes through."""
    async with warm(road, "tools/call", core=WARN) as (up, client):
        head, body = await client.call(name, 5)
        error = error_of(body)
        assert (head.status, error["code"], error["id"]) == (200, -32011, 5)
        assert "the call may have run" in error["message"]
        assert calls(up, name) == 1
        assert (await client.call("write", 6))[1] == result(6)


@pytest.mark.parametrize("name", ["read", "set"])
async def test_call_of_a_tool_that_says_so_is_sent_again(road: StartRoad, name: str) -> None:
    """By the definition that the session was shown, the tool changes nothing, or nothing more."""
    async with warm(road, "tools/call", core=WARN) as (up, client):
        assert (await client.call(name, 5))[1] == result(5)
        assert calls(up, name) == 2


async def test_hints_that_nobody_looked_at_promise_nothing(road: StartRoad) -> None:
    """Where no catalogue is guarded the adapter holds no definition, so the call is sent once."""
    async with warm(road, "tools/call") as (up, client):
        assert error_of((await client.call("read", 5))[1])["code"] == -32011
        assert calls(up, "read") == 1


async def test_modern_call_gets_the_status_of_its_era(road: StartRoad) -> None:
    """502, with the same body."""
    script = Closing()
    async with road(script) as (up, _, client):
        assert (await client.modern_call())[0].status == 200
        script.method = "tools/call"
        head, body = await client.modern_call()
        assert head.status == 502 and "may have run" in error_of(body)["message"]
        assert len(up.calls("tools/call")) == 2


@pytest.mark.parametrize(
    "body",
    [LIST, b'{"jsonrpc":"2.0","id":8,"method":"resources/read","params":{"uri":"a:b"}}'],
    ids=["tools/list", "resources/read"],
)
async def test_reading_is_sent_again(road: StartRoad, body: bytes) -> None:
    """Nobody notices that the server closed."""
    method: str = orjson.loads(body)["method"]
    async with warm(road, method) as (up, client):
        before = len(up.calls(method))
        head, answer = await client.request("POST", body)
        assert head.status == 200 and "result" in orjson.loads(answer)
        assert len(up.calls(method)) == before + 2


async def test_stream_is_opened_again(road: StartRoad) -> None:
    """A GET that got no byte only listens."""
    async with warm(road, "GET") as (up, client):
        head, _ = await client.request("GET")
        assert head.status == 200 and len(up.calls("GET")) == 2


@pytest.mark.parametrize(("second", "sent"), [("read", 2), ("write", 1)])
async def test_batch_is_sent_again_where_all_its_members_may_be(
    road: StartRoad, second: str, sent: int
) -> None:
    """One call that may have run is enough to send none of them again."""
    script = Closing()
    batch = b"[" + call_body("read", 1) + b"," + call_body(second, 2) + b"]"
    async with road(script, version="2025-03-26", core=WARN) as (up, _, client):
        await warmed(client)
        script.method = "batch"
        before = len(up.seen)
        _, body = await client.request("POST", batch)
        assert len(up.seen) - before == sent
        assert (b"may have run" in body) == (sent == 1)


def padded(size: int) -> bytes:
    return result(5, "x" * size)


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (result(5), 1),
        (b"[" + result(5) + b"]", 1),
        (gzip.compress(result(5)), 1),
        (padded(60_000), 1),
        (padded(70_000), 2),
        (result(6), 2),
        (b'{"jsonrpc":"2.0","id":true,"result":{}}', 2),
        (b'{"jsonrpc":"2.0","id":5,"error":{"code":-32002,"message":"no such order"}}', 2),
        (b"Session not found", 2),
        (b"", 2),
    ],
    ids=["result", "array", "gzip", "long", "too long", "another id", "no id", "error", "text", "nothing"],
)
async def test_a_404_with_the_result_of_a_call_is_its_answer(
    in_session: StartRoad, answer: bytes, sent: int
) -> None:
    """The call has run, whatever the status says. Any other 404 is that of a session the server no longer knows."""

    async def script(exchange: Exchange) -> None:
        if len(up.calls("tools/call")) > 1:
            await exchange.json(result(5))
        else:
            coding = ["Content-Encoding: gzip"] if answer.startswith(b"\x1f") else []
            await exchange.answer(404, answer, "Content-Type: application/json", *coding)

    async with in_session(script) as (up, _, client):
        head, body = await client.call("write", 5)
        assert len(up.calls("tools/call")) == sent and up.opened == sent
        assert (head.status, body) == ((404, answer) if sent == 1 else (200, result(5)))


async def test_a_404_that_does_not_end_is_not_waited_for(in_session: StartRoad) -> None:
    """Two seconds are enough for what a server says of a session that it does not know."""

    async def script(exchange: Exchange) -> None:
        if len(up.calls("tools/call")) > 1:
            await exchange.json(result(5))
        else:
            await exchange.send(b"HTTP/1.1 404 X\r\nContent-Length: 1000\r\n\r\n{")
            await exchange.gone()

    async with in_session(script) as (up, _, client):
        async with asyncio.timeout(10):
            assert (await client.call("write", 5))[1] == result(5)


async def test_reading_that_met_a_404_is_repeated(in_session: StartRoad) -> None:
    """Whatever came with it: what changes nothing may be sent again."""

    async def script(exchange: Exchange) -> None:
        status = 404 if len(up.calls("tools/list")) == 1 else 200
        await exchange.answer(status, result(7), "Content-Type: application/json")

    async with in_session(script) as (up, _, client):
        head, _ = await client.request("POST", LIST)
        assert head.status == 200 and len(up.calls("tools/list")) == 2
