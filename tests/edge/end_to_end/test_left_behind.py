"""Nothing stays behind upstream or in the store when requests cross each other or their client goes away."""

from __future__ import annotations

import asyncio
import gzip

from adapter.relay.sessions.session_map import TABLE
from tests.edge.conftest import StartRoad
from tests.edge.raw import INITIALIZE, Exchange, call_body, event, initialize_result, result, silent
from tests.waiting import until


async def test_client_that_leaves_while_initializing_leaves_no_upstream_session(road: StartRoad) -> None:
    """The upstream has opened its session when the client goes, so the adapter closes it."""

    async def opening(exchange: Exchange) -> None:
        await exchange.begin_stream("Mcp-Session-Id: upstream-early")
        await exchange.chunk(event(b"", "1"))
        await exchange.end_stream()

    async with road(silent, opening=opening) as (up, front, client):
        up.sessions.add("upstream-early")
        await client.send("POST", INITIALIZE)
        await up.arrived("GET")
        client.close()
        assert (await up.arrived("DELETE")).head["mcp-session-id"] == "upstream-early"
        await until(lambda: not front.app.sessions.active)
        assert await front.app.store.count(TABLE) == 0


async def test_delete_waits_for_a_renewal_and_closes_what_it_opened(road: StartRoad) -> None:
    """A session that is deleted while its upstream session is replaced leaves neither of the two open."""
    renewing, go_on = asyncio.Event(), asyncio.Event()

    async def opening(exchange: Exchange) -> None:
        up.opened += 1
        if up.opened == 2:
            renewing.set()
            await go_on.wait()
        up.sessions.add(name := f"upstream-{up.opened}")
        await exchange.json(initialize_result(exchange.message["id"]), f"Mcp-Session-Id: {name}")

    async with road(opening=opening) as (up, front, caller), front.client() as leaver:
        await caller.initialize()
        leaver.session = caller.session
        up.sessions.clear()
        await caller.send("POST", call_body())
        await renewing.wait()
        await leaver.send("DELETE")
        await until(lambda: not front.app.sessions.active)
        go_on.set()
        assert (await leaver.head()).status == 200
        await caller.head()
        assert up.sessions == set()
        assert await front.app.store.count(TABLE) == 0


async def test_compressed_body_with_something_behind_its_end_is_refused(in_session: StartRoad) -> None:
    """A second gzip member would be read by the upstream alone, so the two would see different messages."""
    async with in_session() as (up, _, client):
        body = gzip.compress(call_body()) + gzip.compress(b" ")
        head, _ = await client.request("POST", body, content_encoding="gzip")
        assert head.status == 400 and up.calls("tools/call") == []
        _, answer = await client.request("POST", gzip.compress(call_body()), content_encoding="gzip")
        assert answer == result(1)
