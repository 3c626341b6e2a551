"""How long a session that lies idle may still be asked for."""

from __future__ import annotations

import pytest

from adapter.errors import UpstreamUnreachable
from adapter.relay.sessions import SessionLimits
from adapter.upstream.scripted import Expect, ScriptedUpstream
from tests.relay.relaying import Relaying

LIMITS = SessionLimits(idle_ttl=10.0, tombstone_ttl=100.0)


async def test_tombstones_time_counts_from_the_last_use() -> None:
    """A session in use for longer than a tombstone lasts is still revived after it went idle."""
    one = Relaying(ScriptedUpstream(), limits=LIMITS)
    session = await one.open()
    for _ in range(30):
        one.clock.now += 9
        await one.sessions.find(session, "one", "anonymous")
        await one.sessions.write_last_seen()
    one.clock.now += 11
    [(row, record)] = await one.sessions.overdue()
    await one.sessions.lay_to_rest(row, record)
    one.clock.now += 50
    assert (await one.sessions.find(session, "one", "anonymous")).asleep


async def test_tombstone_asked_for_in_vain_keeps_its_time() -> None:
    """While the upstream is down a client may ask again and again, and the session is still there later."""
    down = ScriptedUpstream([(Expect(method="POST"), UpstreamUnreachable())])
    one = Relaying(down, limits=LIMITS)
    session = await one.open()
    one.clock.now += 11
    [(row, record)] = await one.sessions.overdue()
    await one.sessions.lay_to_rest(row, record)
    found = await one.sessions.find(session, "one", "anonymous")
    with pytest.raises(UpstreamUnreachable):
        await one.mapping.renew(one.ask(b"", session), found)
    await one.sessions.write_last_seen()
    one.clock.now += 20
    await one.janitor.go_round()
    assert (await one.sessions.find(session, "one", "anonymous")).asleep
    one.clock.now += 100
    await one.janitor.go_round()
    assert one.sessions.active == 0
