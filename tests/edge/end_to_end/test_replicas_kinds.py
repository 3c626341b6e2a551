"""Servers of every kind through all replicas: SSE upstreams, which live in one, hosted tools, and those over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.edge.conftest import done
from tests.edge.end_to_end.test_sse_upstream import playing
from tests.edge.raw import RawUpstream
from tests.edge.replicating import call, site

HOSTED: dict[str, Any] = {
    "upstream": {"transport": "hosted"},
    "tools": {"define": [{"name": "one", "use": "main", "statement": "SELECT 1 AS n"}]},
}
CONNECTORS = [{"name": "main", "connector": "sqlite", "connection_string": ":memory:"}]


async def test_an_sse_session_has_one_stream(tmp_path: Path) -> None:
    """Calls through B are posted to the endpoint of A's stream, and DELETE through B ends it."""
    async with playing() as player:
        server = {"upstream": {"transport": "sse", "url": player.site.url}}
        async with site(tmp_path, server) as found:
            a, b = await found.start("a"), await found.start("b")
            async with a.client() as first:
                await first.initialize()
                async with b.client(first.session) as second:
                    assert "result" in await call(second, "read", 2)
                    assert player.methods(0)[-1] == "tools/call"
                    assert len(player.streams) == 1
                    assert (await second.request("DELETE"))[0].status == 200
                    await player.streams[0].left()


async def test_hosted_tools_are_called_through_any_replica(tmp_path: Path) -> None:
    """When A, which opened the session, has gone, it goes on in B."""
    async with site(tmp_path, HOSTED, connectors=CONNECTORS) as found:
        a, b = await found.start("a"), await found.start("b")
        async with a.client() as first:
            await first.initialize()
            async with b.client(first.session) as second:
                here, there = await call(first, "one"), await call(second, "one")
                assert here == there
                assert here["result"]["isError"] is False
                await found.kill("a", a)
                assert await call(second, "one") == here


async def test_a_session_of_an_http_upstream_has_no_owner(tmp_path: Path) -> None:
    """Nothing is forwarded: any replica speaks to the server itself."""
    upstream = RawUpstream(done)
    await upstream.start()
    try:
        async with site(tmp_path, {"upstream": {"url": upstream.url}}) as found:
            a, b = await found.start("a"), await found.start("b")
            async with a.client() as first:
                await first.initialize()
                await found.kill("a", a)
                async with b.client(first.session) as second:
                    assert "result" in await call(second, "tool")
                assert upstream.opened == 1
    finally:
        await upstream.stop()
