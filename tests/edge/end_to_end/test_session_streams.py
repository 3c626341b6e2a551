"""GET streams end with the session they were opened in, at both ends, and in good order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapter.errors import SessionUnknown
from tests.edge.conftest import Adapter, StartRoad
from tests.edge.raw import Exchange, RawClient, event, read_body

HELLO = event(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}')
KINDS: dict[str, dict[str, Any]] = {
    "piped": {},
    "watched": {"core": {"tool_definition_pinning": {"mode": "warn"}}},
    "read": {"server": {"stages": {"*": {"limits": {"rate": {"max": 10}}}}}},
}


class Listened:
    """An upstream's script with a stream that says hello; ``closed`` when the adapter has let go of it."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(HELLO)
        await exchange.gone()
        self.closed.set()


async def listening(front: Adapter, session: str | None) -> RawClient:
    """A client whose stream is open."""
    client = await front.client().__aenter__()
    client.session = session
    await client.send("GET")
    await client.head()
    assert await client.read_until(len(HELLO)) == HELLO
    return client


async def ended(client: RawClient, script: Listened) -> None:
    """Wait until the stream has ended in good order, and the upstream's with it."""
    async with asyncio.timeout(20):
        assert await client.reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"
        await script.closed.wait()
    client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_delete_ends_the_streams_of_its_session(in_session: StartRoad, kind: str) -> None:
    """And of no other one."""
    script = Listened()
    async with in_session(script, **KINDS[kind]) as (_, front, client):
        other = await listening(front, client.session)
        other.close()
        await script.closed.wait()
        script.closed.clear()
        first = client.session
        await client.initialize()
        bystander = await listening(front, client.session)
        client.session = first
        stream = await listening(front, first)
        assert (await client.request("DELETE"))[0].status == 200
        await ended(stream, script)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await bystander.reader.read(1)
        bystander.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_streams_of_a_session_that_idled_away_end(in_session: StartRoad, kind: str) -> None:
    """The upstream's session is closed, so nothing more could come."""
    script = Listened()
    limits = {"sessions": {"idle_ttl_seconds": 0.05}}
    async with in_session(script, **KINDS[kind], **limits) as (up, front, client):
        stream = await listening(front, client.session)
        await asyncio.sleep(0.06)
        await front.app.cleanup.run_once()
        await ended(stream, script)
        assert up.sessions == set()


async def test_stream_that_opens_while_its_session_ends(in_session: StartRoad) -> None:
    """What the upstream answers too late is dropped, so that nobody listens to a session that is over."""
    answer, script = asyncio.Event(), Listened()

    async def late(exchange: Exchange) -> None:
        await answer.wait()
        await script(exchange)

    async with in_session(late) as (up, front, client), front.client() as other:
        other.session = client.session
        await other.send("GET")
        await up.arrived("GET")
        await client.request("DELETE")
        answer.set()
        head = await other.head()
        assert head.status == SessionUnknown.http
        assert b"initialize again" in await read_body(other.reader, head)
        await script.closed.wait()
