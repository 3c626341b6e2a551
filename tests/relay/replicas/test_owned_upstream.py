"""Upstreams with owners: a session that others could not reach goes on here as long as it is used."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from adapter.errors import UpstreamUnreachable
from adapter.relay.replicas import home
from adapter.relay.replicas.home import LeftSessions
from adapter.relay.replicas.owned_upstream import OwnedUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from tests.relay.replicas.forwarders import Played, pair

CALL = UpstreamRequest("POST", [("Mcp-Session-Id", "a:token")], b"{}")


async def test_a_session_that_is_used_again_is_kept() -> None:
    """The other replica could not open it anew, or its client came here: either way it lives here."""
    async with pair() as found:

        async def refuse(_: UpstreamRequest) -> UpstreamReply:
            raise UpstreamUnreachable

        found.connect = lambda: Played(refuse)
        await found.near.send(CALL, 1.0)
        async with asyncio.timeout(20):
            while not found.home.left:
                await asyncio.sleep(0)
        here = OwnedUpstream("raw", found.far, found.a, found.forwarding, found.home.left)
        await here.send(replace(CALL, headers=[]), 1.0)
        assert len(found.home.left) == 1
        await here.send(CALL, 1.0)
        assert len(found.home.left) == 0
        await here.close()
        assert found.far.closed


async def test_a_session_that_is_forwarded_here_again_is_kept() -> None:
    """A connection that failed once may work the next time."""
    async with pair() as found:
        found.home.left.add("raw", "a:token")
        await found.near.send(CALL, 1.0)
        assert len(found.home.left) == 0


async def test_a_session_that_nobody_uses_ends() -> None:
    """After a while, and at once where too many are waited for."""
    ended: list[str] = []
    left = LeftSessions(lambda _, session: ended.append(session), unused=0.01)
    left.add("raw", "one")
    left.add("raw", "one")
    async with asyncio.timeout(20):
        while not ended:
            await asyncio.sleep(0.01)
    assert (ended, len(left)) == (["one"], 0)
    left = LeftSessions(lambda _, session: ended.append(session))
    for number in range(home.MOST_LEFT + 1):
        left.add("raw", str(number))
    assert (ended, len(left)) == (["one", "0"], home.MOST_LEFT)
    left.used("raw", None)
    left.used("raw", "none")
    left.close()
    assert len(left) == 0
