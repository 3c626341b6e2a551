"""Upstreams with owners: a session that others could not reach goes on here as long as it is used."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from adapter.errors import UpstreamUnreachable
from adapter.relay.background import BackgroundTasks
from adapter.relay.replicas import home
from adapter.relay.replicas.forwarding import ReplicaForwarder
from adapter.relay.replicas.home import LeftSessions, OwnedUpstream
from adapter.rules.access.replicas import replica_tag
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest
from tests.relay.replicas.forwarders import Pair, Played
from tests.waiting import until

CALL = UpstreamRequest("POST", [("Mcp-Session-Id", "a:token")], b"{}")


async def test_a_session_that_is_used_again_is_kept(found: Pair) -> None:
    """The other replica could not open it anew, or its client came here: either way it lives here."""

    async def refuse(_: UpstreamRequest) -> UpstreamReply:
        raise UpstreamUnreachable

    found.connect = lambda: Played(refuse)
    await found.near.send(CALL, 1.0)
    await until(lambda: found.home.left)
    forwarding = ReplicaForwarder(found.a, found.peer, BackgroundTasks())
    here = OwnedUpstream("raw", found.far, forwarding, found.home.left)
    await here.send(replace(CALL, headers=[]), 1.0)
    assert len(found.home.left) == 1
    await here.send(CALL, 1.0)
    assert len(found.home.left) == 0
    await here.close()
    assert found.far.closed


async def test_a_session_that_is_forwarded_here_again_is_kept(found: Pair) -> None:
    """A connection that failed once may work the next time."""
    found.home.left.add("raw", "a:token")
    await found.near.send(CALL, 1.0)
    assert len(found.home.left) == 0


async def test_a_session_that_nobody_uses_ends() -> None:
    """After a while, and at once where too many are waited for."""
    ended: list[str] = []
    left = LeftSessions(lambda _, session: ended.append(session), unused=0.01)
    left.add("raw", "one")
    left.add("raw", "one")
    await until(lambda: ended)
    assert (ended, len(left)) == (["one"], 0)
    left = LeftSessions(lambda _, session: ended.append(session))
    for number in range(home.MOST_LEFT + 1):
        left.add("raw", str(number))
    assert (ended, len(left)) == (["one", "0"], home.MOST_LEFT)
    left.used("raw", None)
    left.used("raw", "none")
    left.close()
    assert len(left) == 0


async def test_of_sessions_that_all_serve_only_a_broken_stream_is_forwarded(found: Pair) -> None:
    """To the replica whose name begins the id of the event; where it has gone or is unknown, a new one opens here."""
    here = Played()
    upstream = OwnedUpstream("raw", here, found.forwarding, found.home.left)
    await found.b.look()
    kept = f"{replica_tag('a')}.1-7"

    async def asked(
        last: str | None, purpose: Purpose = Purpose.STREAM, session: str = "p1.x"
    ) -> tuple[int, int]:
        fields = [("Mcp-Session-Id", session)] + ([("Last-Event-ID", last)] if last is not None else [])
        before = len(here.seen), len(found.far.seen)
        reply = await upstream.send(UpstreamRequest("GET", fields, purpose=purpose), 1.0)
        assert reply.status == 200
        return len(here.seen) - before[0], len(found.far.seen) - before[1]

    assert await asked(kept) == (0, 1)
    assert await asked(kept, Purpose.CALL) == (1, 0)
    assert await asked(kept, session="a:token") == (0, 1)
    assert await asked(None, Purpose.CALL, session="b:token") == (1, 0)
    for last in (None, "", "1-7", "unknown.1-7", f"{replica_tag('b')}.1-7", "."):
        assert await asked(last) == (1, 0), last

    async def refuse(_: UpstreamRequest) -> UpstreamReply:
        raise UpstreamUnreachable

    await found.forwarding.close()
    found.connect = lambda: Played(refuse)
    assert await asked(kept) == (1, 0)
    # The session goes on there as well, so it is not to end as one that has moved.
    await asyncio.sleep(0)
    assert not found.home.left
    await upstream.close()
    assert here.closed
