"""Upstreams that restart, close, hang or never end, and clients that hold streams: nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.e2e.processes import START_TIMEOUT, Running, adapter, start
from tests.edge.conftest import done
from tests.edge.raw import (
    INITIALIZE,
    Exchange,
    RawClient,
    RawUpstream,
    call_body,
    error_of,
    initialize_result,
    read_body,
    read_head,
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


async def test_server_that_closes_after_each_call(tmp_path: Path) -> None:
    """A hundred calls in a row, each on a connection that was kept from the one before's list."""

    async def closing(exchange: Exchange) -> None:
        if exchange.message["method"] == "tools/call":
            exchange.hang_up()
        else:
            await exchange.json(b'{"jsonrpc":"2.0","id":9,"result":{"tools":[]}}')

    async with (
        RawUpstream(closing) as up,
        attacked(tmp_path, up.url) as arena,
        clients(arena, 1) as (client,),
    ):
        for number in range(100):
            await client.request("POST", LIST)
            assert error_of((await client.call("tool", number))[1])["code"] == -32011
        assert max(runs(up).values()) == 1


# --- streams --------------------------------------------------------------------------------------------------

STREAMS = 600


@contextlib.asynccontextmanager
async def streaming(place: Path) -> AsyncIterator[tuple[Running, int]]:
    """The benchmark's upstream in a process of its own, whose streams stay open."""
    async with await start([sys.executable, "-m", "tests.bench.upstream"], place / "upstream.log") as up:
        yield up, int(await up.line(START_TIMEOUT))


async def open_streams(port: int) -> int:
    """Streams that are open at the benchmark's upstream."""
    async with RawClient(port) as client:
        return int((await client.request("GET", path="/streams"))[1])


@contextlib.asynccontextmanager
async def held(arena: Arena, session: str | None, count: int) -> AsyncIterator[list[int]]:
    """So many GET streams of one session at once; their statuses."""
    async with contextlib.AsyncExitStack() as stack:
        statuses = []
        for _ in range(count):
            client = await stack.enter_async_context(arena.client())
            client.session = session
            await client.send("GET")
            statuses.append((await client.head()).status)
        yield statuses


async def test_many_streams_leave_calls_and_pings_their_connections(tmp_path: Path) -> None:
    """Six hundred idle streams on a system that begins with few descriptors: calls go on, the server is healthy, and
    when the session is deleted all streams are gone at both ends."""
    few = ["sh", "-c", 'ulimit -Sn 512 && exec "$@"', "sh"]
    ping = {"upstream_ping": {"interval_seconds": 0.2, "timeout_seconds": 1, "failure_threshold": 1}}
    async with (
        streaming(tmp_path) as (_, port),
        attacked(tmp_path, f"http://127.0.0.1:{port}/mcp", launcher=few, core=ping) as arena,
        clients(arena, 1) as (client,),
        held(arena, client.session, STREAMS) as statuses,
    ):
        assert set(statuses) == {200}
        assert await open_streams(port) == STREAMS
        async with clients(arena, 1) as (other,):
            for number in range(50):
                head, body = await other.request("POST", call_body("echo", number))
                assert head.status == 200 and "result" in orjson.loads(body)
        await asyncio.sleep(1)
        status, body_ = await ask(arena, "/healthz")
        assert status == 200, body_
        assert (await client.request("DELETE"))[0].status == 200
        async with asyncio.timeout(20):
            while await open_streams(port):
                await asyncio.sleep(0.05)


async def test_streams_above_their_limit_are_refused(tmp_path: Path) -> None:
    """With a sentence that names the setting; calls do not notice."""
    core = {"upstream": {"max_connections": 4}}
    async with (
        streaming(tmp_path) as (_, port),
        attacked(tmp_path, f"http://127.0.0.1:{port}/mcp", core=core) as arena,
        clients(arena, 2) as (client, other),
        held(arena, client.session, 200) as statuses,
    ):
        assert Counter(statuses) == {200: 16, 429: 184}
        head, body = await other.request("GET")
        assert head.status == 429 and b"core.upstream.max_connections" in body
        for number in range(50):
            assert (await other.request("POST", call_body("echo", number)))[0].status == 200


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


# --- servers that hang or wake slowly -------------------------------------------------------------------------


async def test_hanging_server_holds_up_no_cleanup(tmp_path: Path) -> None:
    """Two hundred sessions idle away at a server that does not answer; those of another one are closed in time, also
    where they idle away while the first ones are being closed.
    """
    hanging = asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        hanging.set()
        await exchange.gone()

    class Hanging(RawUpstream):
        async def _answer(self, exchange: Exchange) -> None:
            if exchange.head.method == "DELETE":
                await hang(exchange)
            else:
                await super()._answer(exchange)

    async with Hanging(done) as up, RawUpstream(done) as well:
        entry = {"id": "well", "mount_path": "/well", "upstream": {"url": well.url}}
        sections: dict[str, Any] = {
            "core": {"cleanup_interval_seconds": 0.3, "upstream_ping": {"enabled": False}},
            "sessions": {"idle_ttl_seconds": 1},
            "servers": [entry],
        }
        async with attacked(tmp_path, up.url, **sections) as arena, arena.client() as client:
            for _ in range(200):
                await client.initialize()
            async with asyncio.timeout(10):
                await hanging.wait()
            for _ in range(50):
                client.session = None
                assert (await client.request("POST", INITIALIZE, "/well"))[0].status == 200
            await until(lambda: not (well.sessions))
            assert len(up.sessions) == 200


async def test_server_that_wakes_slowly_is_used_and_not_flooded(tmp_path: Path) -> None:
    """An initialize takes four times as long as a ping may: one session is opened, and the breaker stays closed."""
    begun = 0

    async def slow(exchange: Exchange) -> None:
        nonlocal begun
        begun += 1
        name = f"slow-{begun}"
        up.sessions.add(name)
        await asyncio.sleep(2)
        await exchange.json(initialize_result(exchange.message["id"]), f"Mcp-Session-Id: {name}")

    up = RawUpstream(done, opening=slow)
    ping = {
        "interval_seconds": 0.2,
        "timeout_seconds": 0.5,
        "failure_threshold": 2,
        "open_cooldown_seconds": 0.5,
    }
    async with up, attacked(tmp_path, up.url, core={"upstream_ping": ping}) as arena:
        async with asyncio.timeout(10):
            while (await ask(arena, "/healthz"))[0] != 200:
                await asyncio.sleep(0.1)
        assert (begun, len(up.sessions)) == (1, 1)
        async with arena.client() as client:
            await client.initialize()
            assert (await client.call())[1] == result(1)
        async with arena.client() as impatient:
            await impatient.send("POST", INITIALIZE)
            await until(lambda: begun >= 3)
        await until(lambda: up.sessions == {"slow-1", "slow-2"})


# --- stopping -------------------------------------------------------------------------------------------------


async def test_calls_beyond_the_grace_of_a_stop_are_answered(tmp_path: Path) -> None:
    """Ten calls that never end and a stream: the process ends in time, and all are told."""

    async def hang(exchange: Exchange) -> None:
        if exchange.head.method == "GET":
            await exchange.begin_stream()
        await exchange.gone()

    async with RawUpstream(hang) as up:
        core = {"shutdown_grace_seconds": 1, "upstream_ping": {"enabled": False}}
        async with adapter(tmp_path, up.url, core=core) as front, contextlib.AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(RawClient(front.port)) for _ in range(11)]
            for number, client in enumerate(opened):
                await client.initialize()
                await client.send(*("GET",) if number == 10 else ("POST", call_body(number=number)))
            listener = opened.pop()
            streaming_head = await read_head(listener.reader)
            await until(lambda: len(up.calls("tools/call")) >= 10)
            assert front.running is not None
            front.running.process.terminate()
            for number, client in enumerate(opened):
                head = await client.head()
                error = error_of(await read_body(client.reader, head))
                assert (head.status, error["code"], error["id"]) == (200, -32016, number)
            assert b"retry:" in await read_body(listener.reader, streaming_head)
            async with asyncio.timeout(20):
                assert await front.running.process.wait() == 0
