"""Sessions of hosted tools over several replicas: each of them serves any, and nothing is forwarded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import orjson

from adapter.hosted.server import HostedServer, HostedTool
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.relay.sessions.session_map import TABLE
from adapter.rules.access.sessions import SessionRecord, decode, session_key
from adapter.upstream.local.upstream import LocalUpstream
from tests.edge.raw import RawClient
from tests.edge.replicating import Replica, Site, call, site
from tests.hosted.serving import text
from tests.hosted.serving import tool as hosted_tool

HOSTED: dict[str, Any] = {
    "upstream": {"transport": "hosted"},
    "tools": {"define": [{"name": "one", "use": "main", "statement": "SELECT 1 AS n"}]},
}
CONNECTORS = [{"name": "main", "connector": "sqlite", "connection_string": ":memory:"}]


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
            offered = hosted_tool("capable", capable), *tools
            hosted(replica).tools.update({each.name: each for each in offered})
        yield found, started


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
