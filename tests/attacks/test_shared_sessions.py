"""Shared sessions under attack: floods for many listeners, and messages that are dear to read."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import orjson
import pytest

from tests.attacks.arena import attacked
from tests.edge.raw import Exchange, RawUpstream, error_of, event, result

pytestmark = pytest.mark.e2e

MIB = 1 << 20
SHARED = {"upstream": "principal", "missing_id": "principal"}
BRACKETS = b"[" * 500 + b"]" * 500
DEAR = b"[" + b",".join([BRACKETS] * 90) + b"]"
"""Ninety thousand brackets that open: each costs a step where a message is edited."""
TOO_DEAR = b"[" + b",".join([BRACKETS] * 6000) + b"]"


async def test_flood_on_a_shared_stream_harms_nobody(tmp_path: Path) -> None:
    """The server says a million small things to a hundred listeners that do not read: their streams end."""

    async def flood(exchange: Exchange) -> None:
        if exchange.head.method != "GET":
            await exchange.json(result(int(str(exchange.message["id"]))))
            return
        await exchange.begin_stream()
        news = event(b'{"jsonrpc":"2.0","method":"notifications/a"}', "e")
        with contextlib.suppress(ConnectionError):
            for _ in range(500):
                await exchange.chunk(b":\n\n" * 1000 + news * 500 + b"\n" * 3000)
            await exchange.gone()

    async with (
        RawUpstream(flood) as up,
        attacked(tmp_path, up.url, sessions=SHARED) as arena,
        contextlib.AsyncExitStack() as stack,
    ):
        before = arena.resident_bytes()
        for _ in range(100):
            client = await stack.enter_async_context(arena.client())
            await client.initialize()
            client.stop_reading()
            await client.send("GET", Accept="text/event-stream")
        await asyncio.sleep(3)
        assert arena.resident_bytes() - before < 200 * MIB


async def test_dear_messages_of_a_server_harm_nobody(tmp_path: Path) -> None:
    """Questions of ninety thousand brackets, fifty of them to everybody, and an answer that is too dear to be read."""

    async def dear(exchange: Exchange) -> None:
        question = b'{"jsonrpc":"2.0","params":{"a":' + DEAR + b'},"id":1,"method":"roots/list"}'
        number = orjson.dumps(exchange.message.get("id"))
        echo = b'{"id":' + number + b',"result":[' + TOO_DEAR + b',{"id":' + number + b'}],"jsonrpc":"2.0"}'
        await exchange.begin_stream()
        if exchange.head.method == "POST":
            await exchange.chunk(event(question))
            await exchange.chunk(event(echo))
            await exchange.end_stream()
            return
        for _ in range(50):
            await exchange.chunk(event(question))

    async with (
        RawUpstream(dear) as up,
        attacked(tmp_path, up.url, sessions=SHARED) as arena,
        arena.client() as caller,
        arena.client() as listener,
    ):
        for client in (caller, listener):
            await client.initialize()
        await listener.send("GET", Accept="text/event-stream")
        assert (await listener.head()).status == 200
        await listener.read_until(50 * len(DEAR))
        head, text = await caller.request(
            "POST", orjson.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"})
        )
        *_, last = text.rstrip(b"\n").split(b"\n\n")
        assert head.status == 200 and error_of(last.removeprefix(b"data: "))["code"] == -32011


async def test_dear_messages_of_a_client_harm_nobody(tmp_path: Path) -> None:
    """Arguments of ninety thousand brackets, with a token behind them, from hosts that name no session."""

    async def heard(exchange: Exchange) -> None:
        number = exchange.message["id"]
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {}}))

    body = (
        b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"a":'
        + DEAR
        + b',"_meta":{"progressToken":1}}}'
    )
    async with RawUpstream(heard) as up, attacked(tmp_path, up.url, sessions=SHARED) as arena:

        async def ask() -> None:
            async with arena.client() as client:
                head, answer = await client.request("POST", body)
                assert head.status == 200 and orjson.loads(answer)["id"] == 5

        await asyncio.gather(*(ask() for _ in range(4)))
