"""Open streams by the thousand: held, never read, opened and dropped, with few open files. Others must not notice."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.attacks.crowd import AT_ONCE, crowd
from tests.attacks.test_upstreams import ask, clients, open_streams, streaming
from tests.e2e.processes import adapter
from tests.edge.raw import Exchange, RawClient, RawUpstream, call_body, read_body

pytestmark = pytest.mark.e2e

MIB = 1 << 20
MANY = 2_000
NO_PINGS = {"upstream_ping": {"enabled": False}}
ROOM = {**NO_PINGS, "upstream": {"max_connections": MANY}}


async def opened(some: list[RawClient], sessions: list[str | None]) -> Counter[int]:
    """Each client opens a stream, in one of the sessions, some at the same time; how often each status came."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def open_one(number: int, client: RawClient) -> int:
        client.session = sessions[number % len(sessions)]
        async with turn:
            await client.send("GET")
            return (await client.head()).status

    return Counter(await asyncio.gather(*(open_one(*each) for each in enumerate(some))))


async def calls_go_on(arena: Arena, count: int = 50) -> None:
    """A new client is served while the attack lasts, and health says so."""
    async with clients(arena, 1) as (client,), asyncio.timeout(10):
        for number in range(count):
            head, body = await client.request("POST", call_body("echo", number))
            assert head.status == 200 and "result" in orjson.loads(body)
    assert (await ask(arena, "/livez"))[0] == 200
    assert (await ask(arena, "/healthz"))[0] == 200


async def gone(port: int) -> None:
    async with asyncio.timeout(10):
        while await open_streams(port):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("sessions", [1, 300])
async def test_thousands_of_streams_are_held(tmp_path: Path, sessions: int) -> None:
    """By one principal, in one session or in many: what each takes of memory is bounded and given back."""
    async with (
        streaming(tmp_path) as (_, port),
        attacked(tmp_path, f"http://127.0.0.1:{port}/mcp", core=ROOM) as arena,
        clients(arena, sessions) as owners,
    ):
        before = arena.resident_bytes()
        async with crowd(arena.client, MANY) as some:
            assert await opened(some, [owner.session for owner in owners]) == {200: MANY}
            assert await open_streams(port) == MANY
            await calls_go_on(arena)
            each = (arena.resident_bytes() - before) / MANY
            assert each < 32 * 1024
        await gone(port)
        held = arena.resident_bytes()
        async with crowd(arena.client, MANY) as some:
            assert await opened(some, [owner.session for owner in owners]) == {200: MANY}
        await gone(port)
        assert arena.resident_bytes() - held < 16 * MIB


async def test_streams_that_come_and_go(tmp_path: Path) -> None:
    """Two thousand, each dropped as soon as it is asked for or has begun: nothing of them stays, at either end."""
    async with (
        streaming(tmp_path) as (_, port),
        attacked(tmp_path, f"http://127.0.0.1:{port}/mcp", core=ROOM) as arena,
        clients(arena, 1) as (owner,),
    ):
        turn = asyncio.Semaphore(50)

        async def come_and_go(number: int) -> None:
            async with turn, arena.client() as client:
                client.session = owner.session
                await client.send("GET")
                if number % 2:
                    await client.head()

        await asyncio.gather(*map(come_and_go, range(MANY)))
        await gone(port)
        before = arena.resident_bytes()
        await asyncio.gather(*map(come_and_go, range(MANY)))
        await calls_go_on(arena)
        await gone(port)
        assert arena.resident_bytes() - before < 16 * MIB


async def test_streams_that_are_never_read(tmp_path: Path) -> None:
    """Each is told more than anybody could keep: the upstream waits, memory does not grow, and calls go on."""
    poured = 0

    async def pour(exchange: Exchange) -> None:
        """As much on each stream as the adapter takes."""
        nonlocal poured
        if exchange.head.method != "GET":
            await exchange.json(
                orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"content": []}})
            )
            return
        await exchange.begin_stream()
        event = b"data: " + b"x" * 16_000 + b"\n\n"
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.chunk(event)
                poured += len(event)

    count = 100
    async with (
        RawUpstream(pour) as up,
        attacked(tmp_path, up.url, core=NO_PINGS) as arena,
        clients(arena, 1) as (owner,),
    ):
        before = arena.resident_bytes()
        async with crowd(arena.client, count) as some:
            for client in some:
                client.session = owner.session
                client.stop_reading()
                await client.send("GET")
            last = -1
            while poured > last:
                last = poured
                await asyncio.sleep(0.5)
            assert arena.resident_bytes() - before < count * MIB
            await calls_go_on(arena)


@contextlib.asynccontextmanager
async def cramped(place: Path, files: int) -> AsyncIterator[tuple[int, Path]]:
    """The adapter on a system that gives it so few open files; its port and its log."""
    few = ["sh", "-c", f'ulimit -Sn {files}; ulimit -Hn {files}; exec "$@"', "sh"]
    async with (
        streaming(place) as (_, port),
        adapter(place, f"http://127.0.0.1:{port}/mcp", launcher=few, core=NO_PINGS) as front,
    ):
        yield front.port, place / "adapter.log"


@pytest.mark.parametrize("files", [128, 512])
async def test_few_open_files_end_nothing(tmp_path: Path, files: int) -> None:
    """More streams than the system has files for: what is held goes on, health answers, whoever finds no place is told
    so, the log tells it once in a while, and all is well when they leave."""
    async with cramped(tmp_path, files) as (port, log), RawClient(port) as owner:
        await owner.initialize()
        statuses: Counter[int] = Counter()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(files):
                client = await stack.enter_async_context(RawClient(port))
                client.session = owner.session
                async with asyncio.timeout(8):
                    await client.send("GET")
                    head = await client.head()
                statuses[head.status] += 1
                if head.status == 503:
                    assert b"limit of open files" in await read_body(client.reader, head)
            assert set(statuses) == {200, 503} and statuses[200] > files // 4
            for number in range(20):
                async with asyncio.timeout(8), RawClient(port) as health:
                    assert (await health.request("GET", path="/healthz"))[0].status == 200
                    head, body = await owner.request("POST", call_body("echo", number))
                    assert head.status == 200 and "result" in orjson.loads(body)
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    async with RawClient(port) as client:
                        client.session = owner.session
                        if (await client.request("POST", call_body("echo", 1)))[0].status == 200:
                            break
                await asyncio.sleep(0.1)
        assert len(log.read_bytes()) < 20_000
