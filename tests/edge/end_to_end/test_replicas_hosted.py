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
from tests.edge.raw import RawClient, read_chunk
from tests.edge.replicating import PATIENCE, Replica, Site, call, messages, next_message, site, tool
from tests.hosted.serving import Waiting, text
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
    """The sessions that these have opened anew."""
    return sum(replica.app.servers["raw"].counters.reinitialized for replica in replicas)


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


async def test_a_session_outlives_the_replica_that_opened_it(tmp_path: Path) -> None:
    """A is gone without a word, and B has never seen the session: it goes on and is not opened anew."""
    async with replicas(tmp_path, 2) as (found, (a, b)), a.client() as first:
        await begin(first)
        before = await row_of(found, first.session)
        await found.kill("a", a)
        async with b.client(first.session) as second:
            assert (await call(second, "capable"))["result"]["content"][0]["text"] == "capable"
        assert (forwarded(b), renewed(b)) == (0, 0)
        assert (await row_of(found, first.session)).upstream == before.upstream


async def test_a_session_that_ended_is_unknown_everywhere(tmp_path: Path) -> None:
    """DELETE at B ends the call that runs at A and the stream at C, and all answer 404."""
    waiting = Waiting()
    async with replicas(tmp_path, 3, hosted_tool("wait", waiting)) as (_, started):
        a, b, c = started
        async with a.client() as first, a.client() as busy:
            await begin(first)
            busy.session = first.session
            await busy.send("POST", tool("wait"))
            await waiting.began.wait()
            async with listening(c, first.session) as listener, b.client(first.session) as second:
                await call(second, "capable")
                assert (await second.request("DELETE"))[0].status == 200
                async with asyncio.timeout(PATIENCE):
                    assert await read_chunk(listener.reader) == b""
                    head = await busy.head()
                    assert b'"error"' in await busy.reader.readexactly(int(head["content-length"]))
                assert waiting.cancelled == 1
            for replica in started:
                async with replica.client(first.session) as client:
                    assert (await client.request("POST", tool("capable")))[0].status == 404
            assert [len(hosted(each).sessions) for each in started] == [0, 0, 0]


async def test_a_call_is_cancelled_through_another_replica(tmp_path: Path) -> None:
    """The client's notification reaches B, and the call that runs at A is given up; another one goes on."""
    waiting, other = Waiting(), Waiting()
    tools = hosted_tool("wait", waiting), hosted_tool("other", other)
    async with (
        replicas(tmp_path, 2, *tools) as (_, (a, b)),
        a.client() as first,
        a.client() as kept,
        b.client() as second,
    ):
        await begin(first)
        kept.session = second.session = first.session
        await first.send("POST", tool("wait", 5))
        await kept.send("POST", tool("other", 6))
        await waiting.began.wait()
        await other.began.wait()
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert (await second.request("POST", orjson.dumps(cancelled)))[0].status == 202
        async with asyncio.timeout(PATIENCE):
            assert (await first.head()).status == 202
        other.go.set()
        assert (await kept.head()).status == 200


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


async def test_a_replica_that_stops_ends_no_session(tmp_path: Path) -> None:
    """Its streams end so that clients come back elsewhere, where the session goes on."""
    async with replicas(tmp_path, 2) as (found, (a, b)), a.client() as first:
        await begin(first)
        async with listening(a, first.session) as listener:
            await found.stop("a")
            async with asyncio.timeout(PATIENCE):
                while await read_chunk(listener.reader):
                    pass
        async with listening(b, first.session) as again, b.client(first.session) as second:
            await call(second, "tell", uri="x:1")
            assert (await next_message(again))["params"]["uri"] == "x:1"
        assert renewed(b) == 0
