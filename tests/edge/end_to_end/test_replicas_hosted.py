"""Sessions of hosted tools over several replicas: each of them serves any, and nothing is forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import orjson

from adapter.hosted.server import HostedServer
from adapter.hosted.tools import HostedTool
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.relay.sessions.session_map import TABLE
from adapter.rules.access.replicas import replica_tag
from adapter.rules.access.sessions import SessionRecord, decode, session_key
from adapter.upstream.local.upstream import LocalUpstream
from tests.edge.raw import RawClient
from tests.edge.replicating import PATIENCE, Replica, Site, call, messages, site
from tests.hosted.serving import text
from tests.hosted.serving import tool as hosted_tool
from tests.waiting import until

HOSTED: dict[str, Any] = {
    "upstream": {"transport": "hosted"},
    "tools": {"define": [{"name": "one", "use": "main", "statement": "SELECT 1 AS n"}]},
}
CONNECTORS = [{"name": "main", "connector": "sqlite", "connection_string": ":memory:"}]
TELL = "notifications/resources/updated"


def hosted(replica: Replica) -> HostedServer:
    """The hosted server of a replica."""
    home = replica.app.servers["raw"].upstream.home  # type: ignore[attr-defined]  # that of replicas
    assert isinstance(home, LocalUpstream)
    server = home.server
    assert isinstance(server, HostedServer)
    return server


def forwarded(*replicas: Replica) -> int:
    """The number of replicas that these have forwarded anything to."""
    return sum(
        int(repr(replica.app.replicas._forwarding).split()[2])
        for replica in replicas
        if replica.app.replicas is not None
    )


def renewed(*replicas: Replica) -> int:
    """The times that these have opened their sessions anew."""
    return sum(each.generation for replica in replicas for each in replica.app.sessions.opened())


async def begin(client: RawClient) -> None:
    """Open a session."""
    params: dict[str, Any] = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "1"}}
    params["capabilities"] = {}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    head, answer = await client.request("POST", orjson.dumps(body))
    assert head.status == 200, answer
    client.session = head["mcp-session-id"]


async def row_of(found: Site, session: str | None) -> SessionRecord:
    row = await found.memory.rows.get(TABLE, session_key(session or ""))
    assert row is not None
    return decode(row.value)


async def tell(call: PlannedCall) -> Outcome:
    """Tells the client something outside of the call."""
    call.client.say(TELL, {"uri": call.arguments["uri"]})
    return text("told")


async def capable(_: PlannedCall) -> Outcome:
    """Says so."""
    return text("capable")


@asynccontextmanager
async def replicas(
    place: Path, number: int = 3, *tools: HostedTool
) -> AsyncIterator[tuple[Site, list[Replica]]]:
    """So many replicas with the same hosted tools."""
    async with site(place, HOSTED, connectors=CONNECTORS) as found:
        started = [await found.start(name) for name in "abc"[:number]]
        for replica in started:
            await replica.registry.look()
            offered = hosted_tool("tell", tell), hosted_tool("capable", capable), *tools
            hosted(replica)._tools.update({each.name: each for each in offered})
        yield found, started


@asynccontextmanager
async def listening(replica: Replica, session: str | None, last: str = "") -> AsyncIterator[RawClient]:
    """A GET stream at a replica."""
    async with replica.client(session) as listener:
        await listener.send("GET", last_event_id=last)
        assert (await listener.head()).status == 200
        yield listener


async def heard(listener: RawClient) -> tuple[str, str]:
    """The next event of a stream: its id, and the resource that it names or else its method."""
    async with asyncio.timeout(PATIENCE):
        event = await listener.read_until(1)
    message = messages(event)[0]
    assert event.startswith(b"id: ")
    return event.split(b"\n")[0][4:].decode(), message.get("params", {}).get("uri", message["method"])


async def turns() -> None:
    """Wait until every word has arrived."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_calls_go_to_all_replicas_and_nothing_is_forwarded(tmp_path: Path) -> None:
    """A session of A is used at three replicas in turn: it stays the same one, and no row is read for a warm call."""
    async with replicas(tmp_path) as (found, started), started[0].client() as first:
        await begin(first)
        before = await row_of(found, first.session)
        for replica in islice(cycle(started), 12):
            async with replica.client(first.session) as client:
                answer = await call(client, "capable")
                assert answer["result"]["content"][0]["text"] == "capable"
        assert (forwarded(*started), renewed(*started)) == (0, 0)
        assert (await row_of(found, first.session)).upstream == before.upstream
        for replica in started:
            async with replica.client(first.session) as client:
                replica.store.calls.clear()
                await call(client, "capable")
                assert not +replica.store.calls


async def test_a_stream_is_resumed_where_it_was(tmp_path: Path) -> None:
    """Its events are at B; through C the client gets what it missed, and what is said from then on."""
    async with replicas(tmp_path) as (found, (a, b, c)), a.client() as first:
        await begin(first)
        async with listening(b, first.session) as listener:
            await call(first, "tell", uri="x:1")
            last, _ = await heard(listener)
        await until(lambda: all(session.idle for session in hosted(b).sessions.all()), PATIENCE)
        await call(first, "tell", uri="x:2")
        await turns()
        async with listening(c, first.session, last) as resumed:
            assert (await heard(resumed))[1] == "x:2"
            await call(first, "tell", uri="x:3")
            last, uri = await heard(resumed)
            assert uri == "x:3"
        await found.kill("b", b)
        async with listening(c, first.session, last) as anew:
            await call(first, "tell", uri="x:4")
            assert (await heard(anew))[1] == "x:4"
        assert last.partition(".")[0] == replica_tag("b")
        async with a.client(first.session) as client:
            assert "result" in await call(client, "capable")
