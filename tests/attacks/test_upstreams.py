"""Upstreams that restart without an answer, or whose answers never end: nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.edge.raw import (
    INITIALIZE,
    Exchange,
    RawClient,
    RawUpstream,
    error_of,
    initialize_result,
    read_body,
    result,
)
from tests.waiting import until

pytestmark = pytest.mark.e2e

MIB = 1 << 20
LIST = b'{"jsonrpc":"2.0","id":9,"method":"tools/list"}'


@contextlib.asynccontextmanager
async def clients(arena: Arena, count: int) -> AsyncIterator[list[RawClient]]:
    """Clients at the attacked server, each with a session of its own."""
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(arena.client()) for _ in range(count)]
        for client in opened:
            await client.initialize()
        yield opened


async def ask(arena: Arena, path: str) -> tuple[int, dict[str, Any]]:
    async with arena.client() as client:
        head, body = await client.request("GET", path=path)
        return head.status, orjson.loads(body)


def runs(up: RawUpstream) -> Counter[object]:
    """How often each call ran, by its id."""
    return Counter(each.message["id"] for each in up.calls("tools/call"))


# --- calls that may have run ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["reset", "closed"])
async def test_calls_over_a_restart_run_once(tmp_path: Path, ends: str) -> None:
    """Twenty slow calls on connections that were kept; the server stops without an answer and is back at once."""

    async def slow(exchange: Exchange) -> None:
        if exchange.message["id"] == 0:
            await exchange.json(result(0))
            return
        await asyncio.sleep(1)
        if ends == "closed":
            exchange.hang_up()
        else:
            exchange.break_off()

    async with RawUpstream(slow) as up, attacked(tmp_path, up.url) as arena, clients(arena, 20) as all_:
        await asyncio.gather(*(client.call("slow", 0) for client in all_))
        calls = [asyncio.create_task(client.call("slow", number)) for number, client in enumerate(all_, 1)]
        await until(lambda: sum(runs(up).values()) >= 40)
        if ends == "reset":
            await up.stop()
            await up.start()
        for head, body in await asyncio.gather(*calls):
            assert head.status == 200
            assert error_of(body)["code"] == -32011 and "may have run" in error_of(body)["message"]
        await asyncio.sleep(0.5)
        assert {number: ran for number, ran in runs(up).items() if number and ran > 1} == {}


# --- answers without an end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("endless", ["line", "events"])
async def test_answers_without_an_end_take_bounded_memory(tmp_path: Path, endless: str) -> None:
    """In answer to initialize, to a list that is read, and on a stream: each is cut, and its memory given back."""
    piece = b"x" * 65536 if endless == "line" else b": still here\n\n" * 4096

    async def pour(exchange: Exchange) -> None:
        """As much as the adapter takes, up to far more than it may hold."""
        await exchange.begin_stream()
        with contextlib.suppress(ConnectionError):
            if endless == "line":
                await exchange.chunk(b"data: ")
            for _ in range(128 * MIB // len(piece)):
                await exchange.chunk(piece)

    async def first(exchange: Exchange) -> None:
        """Opens one session; the next one's answer has no end."""
        if up.opened:
            await pour(exchange)
        else:
            up.opened += 1
            up.sessions.add("only")
            await exchange.json(initialize_result(0), "Mcp-Session-Id: only")

    up = RawUpstream(pour, opening=first)
    core = {"upstream": {"max_answer_bytes": "4Mi"}, "upstream_ping": {"enabled": False}}
    async with up, attacked(tmp_path, up.url, core=core) as arena, clients(arena, 1) as (client,):
        before = arena.resident_bytes()
        async with arena.client() as other:
            head, body = await other.request("POST", INITIALIZE)
            assert head.status == 200 and error_of(body)["code"] == -32011
            assert "core.upstream.max_answer_bytes" in error_of(body)["message"]
        await client.send("POST", LIST)
        head = await client.head()
        if endless == "line":
            body = await read_body(client.reader, head)
            assert error_of(body.removeprefix(b"data: "))["code"] == -32011
        async with arena.client() as deaf:
            # Never reads, so the upstream has to wait.
            deaf.session = client.session
            deaf.stop_reading()
            await deaf.send("GET")
            await asyncio.sleep(1)
            assert arena.resident_bytes() - before < 40 * MIB


# --- stopping -------------------------------------------------------------------------------------------------
