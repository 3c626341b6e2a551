"""How long a session that lies idle may still be asked for."""

from __future__ import annotations

import pytest

from adapter.errors import SessionUnknown, UpstreamUnreachable
from adapter.relay.sessions.session_map import SessionLimits
from tests.relay.relaying import INITIALIZE, Relaying
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
LIMITS = SessionLimits(idle_ttl=10.0, tombstone_ttl=100.0)


async def test_tombstones_time_counts_from_the_last_use() -> None:
    """A session in use for longer than a tombstone lasts is still revived after it went idle."""
    one = Relaying(ScriptedUpstream(), limits=LIMITS)
    session = await one.open()
    for _ in range(30):
        one.clock.now += 9
        await one.sessions.find(session, "one", "anonymous")
        await one.last_seen.write()
    one.clock.now += 11
    [due] = (await one.idle.overdue()).found
    await one.idle.lay_to_rest(due)
    one.clock.now += 50
    assert (await one.sessions.find(session, "one", "anonymous")).asleep


async def test_tombstone_asked_for_in_vain_keeps_its_time() -> None:
    """While the upstream is down a client may ask again and again, and the session is still there later."""
    down = ScriptedUpstream([(Expect(method="POST"), UpstreamUnreachable())])
    one = Relaying(down, limits=LIMITS)
    session = await one.open()
    one.clock.now += 11
    [due] = (await one.idle.overdue()).found
    await one.idle.lay_to_rest(due)
    found = await one.sessions.find(session, "one", "anonymous")
    with pytest.raises(UpstreamUnreachable):
        await one.upstream_sessions.renewal.renew(one.ask(b"", session), found)
    await one.last_seen.write()
    one.clock.now += 20
    await one.cleanup.run_once()
    assert (await one.sessions.find(session, "one", "anonymous")).asleep
    one.clock.now += 100
    await one.cleanup.run_once()
    assert one.sessions.active == 0


async def test_tombstones_that_last_no_time_are_none() -> None:
    """An idle session is unknown at once, the cleanup in time or not, and nothing is left of it after its rounds."""
    one = Relaying(
        ScriptedUpstream([(Expect("DELETE"), ScriptedAnswer())]),
        limits=SessionLimits(idle_ttl=10.0, tombstone_ttl=0.0),
    )
    session = await one.open()
    other = Relaying(ScriptedUpstream(), store=one.store, clock=one.clock, limits=one.limits)
    one.clock.now += 9
    assert not (await other.sessions.find(session, "one", "anonymous")).asleep
    later = Relaying(ScriptedUpstream(), store=one.store, clock=one.clock, limits=one.limits)
    one.clock.now += 1
    with pytest.raises(SessionUnknown):
        await later.sessions.find(session, "one", "anonymous")
    for _ in range(2):
        await one.cleanup.run_once()
    with pytest.raises(SessionUnknown):
        await one.sessions.find(session, "one", "anonymous")
    assert await one.store.count("sessions") == 0


async def test_sessions_that_may_idle_for_no_time_rest_at_the_next_round() -> None:
    """Each round of the cleanup lays them to rest, and each request wakes them."""
    opened = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'
    upstream = ScriptedUpstream([(Expect("DELETE"), ScriptedAnswer())])
    one = Relaying(upstream, limits=SessionLimits(idle_ttl=0.0, tombstone_ttl=100.0))
    session = await one.open()
    await one.cleanup.run_once()
    assert one.sessions.active == 0 and upstream.unplayed == []
    upstream.then(Expect("POST", INITIALIZE), ScriptedAnswer(chunks=[opened]))
    upstream.then(Expect("POST", lambda body: b"notifications/initialized" in body), ScriptedAnswer(202))
    upstream.then(Expect("POST", PING), ScriptedAnswer(chunks=[b"{}"]))
    assert await one.post(PING, session) == b"{}"
