"""Several adapters over one store: a client may meet another one with each request."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.relay.http_api.sessions import IDLE
from adapter.state.port import Store
from adapter.state.redis.layout import Layout
from adapter.state.redis.store import RedisStore
from adapter.state.sqlite import SqliteStore
from tests.edge.conftest import Adapter, Located, StartAdapter, StartUpstream, done
from tests.edge.consoling import Shop, tool
from tests.edge.end_to_end.test_session_streams import KINDS, Listened, ended, listening
from tests.edge.raw import Exchange, call_body, result
from tests.state.redis import servers
from tests.state.shared import SharedMemory

NewStore = Callable[[], Store]


class House:
    """Adapters that were started over one store, each with its view of it."""

    def __init__(self, adapters: list[Adapter]) -> None:
        self.adapters = adapters

    async def request(
        self, number: int, session: str | None, method: str, body: bytes = b""
    ) -> tuple[int, bytes]:
        """One request to the adapter of that number: the status and the body of its answer."""
        async with self.adapters[number].client() as client:
            client.session = session
            head, text = await client.request(method, body)
            return head.status, text

    async def call(self, number: int, session: str | None) -> bytes:
        status, text = await self.request(number, session, "POST", call_body())
        assert status == 200, text
        return text

    async def initialize(self, number: int) -> str:
        async with self.adapters[number].client() as client:
            await client.initialize()
            assert client.session is not None
            return client.session

    async def health(self, number: int) -> Any:
        async with self.adapters[number].client() as client:
            return orjson.loads((await client.request("GET", path="/healthz"))[1])


@contextlib.asynccontextmanager
async def three(adapter: StartAdapter, up: Located, stores: NewStore, **more: Any) -> AsyncIterator[House]:
    async with contextlib.AsyncExitStack() as stack:
        starts = [adapter(up, store=stores(), **more) for _ in range(3)]
        yield House([await stack.enter_async_context(start) for start in starts])


@pytest.fixture(params=["shared memory", "sqlite", "redis"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Gives each replica its store over the same rows."""
    match request.param:
        case "shared memory":
            return SharedMemory().replica
        case "sqlite":
            return partial(SqliteStore, tmp_path / "state.sqlite3", shared=True)
        case _:
            server = request.getfixturevalue("redis_server")
            layout = Layout(f"replicas-{secrets.token_hex(8)}", 4)
            return partial(RedisStore, servers.dialer([server]), layout)


@pytest.mark.parametrize("kind", KINDS)
async def test_session_is_one_on_all_adapters(
    upstream: StartUpstream, adapter: StartAdapter, new_store: NewStore, kind: str
) -> None:
    """Minted on one, served by another, ended on the third: 404 on all, and its streams on all end."""
    script = Listened()

    async def talk(exchange: Exchange) -> None:
        await (done(exchange) if exchange.body else script(exchange))

    async with upstream(talk) as up, three(adapter, up, new_store, **KINDS[kind]) as house:
        session = await house.initialize(0)
        bystander = await house.initialize(0)
        for number in (0, 1, 2):
            assert await house.call(number, session) == result(1)
        streams = [await listening(house.adapters[number], session) for number in (0, 1)]
        kept = await listening(house.adapters[1], bystander)
        assert (await house.request(2, session, "DELETE"))[0] == 200
        for stream in streams:
            await ended(stream, script)
        for number in (0, 1, 2):
            assert (await house.request(number, session, "POST", call_body()))[0] == 404
        assert await house.call(2, bystander) == result(1)
        kept.close()
        assert len(up.sessions) == 1


async def test_caller_over_http_has_one_session_on_all_adapters(
    upstream: StartUpstream, adapter: StartAdapter, new_store: NewStore
) -> None:
    """Its session outlives who opened it, and ends once where nobody uses it any more."""
    console = {"enabled": True, "allow_execute": True}
    async with (
        upstream(Shop(tool("weigh"))) as up,
        three(adapter, up, new_store, console=console) as house,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(each.client()) for each in house.adapters]
        for client in (*clients, *clients):
            head, _ = await client.request("POST", b"{}", "/explorer/raw/tools/weigh/call")
            assert head.status == 200
        (session,) = {call.head["mcp-session-id"] for call in up.calls("tools/call")}
        await house.adapters[0].app.console.close(5)
        assert session in up.sessions
        for each in house.adapters:
            each.app.session_parts.sessions.clock = lambda: time.time() + 3 * IDLE
            await each.app.console.tidy()
        await asyncio.gather(*(each.app.cleanup.run_once() for each in house.adapters))
        assert session not in up.sessions and await house.adapters[0].app.store.scan("http:raw") == []
        assert sum(call.head["mcp-session-id"] == session for call in up.calls("DELETE")) == 1


async def test_start_reads_no_session(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """However many there are; a session is read when it is used."""
    memory = SharedMemory()
    async with upstream() as up, three(adapter, up, memory.replica) as house:
        sessions = [await house.initialize(0) for _ in range(20)]
        store = memory.replica()
        tables: list[str] = []

        async def note(table: str, key: str) -> None:
            tables.append(table)

        store.before = note
        async with adapter(up, store=store) as late:
            assert "sessions" not in tables
            house.adapters[0] = late
            assert await house.call(0, sessions[7]) == result(1)
            assert tables.count("sessions") == 1
