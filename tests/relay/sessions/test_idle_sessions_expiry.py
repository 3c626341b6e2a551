"""Idle sessions where several replicas look after them: used on one of them is used."""

from __future__ import annotations

import asyncio

from adapter.relay.sessions.idle_sessions import DueSession
from adapter.relay.sessions.session_map import SessionLimits
from adapter.rules.access.sessions import SessionState, decode, session_key
from tests.relay.replicating import RESULT, Replica, Replicas

LIMITS = SessionLimits(idle_ttl=100.0, tombstone_ttl=1000.0)


async def state_of(replicas: Replicas, session: str) -> SessionState | None:
    row = await replicas.memory.rows.get("sessions", session_key(session))
    return None if row is None else decode(row.value).state


async def due_on(replica: Replica, put_off: float = 0.0) -> DueSession:
    [due] = (await replica.idle.overdue(put_off)).found
    return due


async def test_use_that_is_written_after_the_round_began_counts() -> None:
    """The row is judged as it is when the session would be laid to rest; putting it off hides no use."""
    replicas = Replicas(LIMITS)
    one, two, _ = replicas.three()
    for put_off in (0.0, 60.0, 3600.0):
        session = await one.initialize()
        await one.last_seen.write()
        replicas.clock.now += 101
        await one.call(session)
        due = await due_on(two, put_off)
        await one.last_seen.write()
        assert not await two.idle.is_idle(due)
        await two.idle.lay_to_rest(due)
        assert await state_of(replicas, session) is SessionState.OPEN
        await one.end(session)


async def test_nobodys_use_is_none() -> None:
    """A session that was put off is laid to rest by the round that did so."""
    replicas = Replicas(LIMITS)
    one, two, _ = replicas.three()
    session = await one.initialize()
    await one.last_seen.write()
    replicas.clock.now += 101
    due = await due_on(two, 60.0)
    assert (await two.idle.overdue()).found == []
    await two.idle.lay_to_rest(due)
    assert await state_of(replicas, session) is SessionState.IDLE


async def test_replica_that_wakes_up_in_the_middle_of_its_round_harms_nobody() -> None:
    """What it read is long over: the session was laid to rest by another, came back, and goes on."""
    replicas = Replicas(LIMITS)
    one, two, three = replicas.three()
    session = await one.initialize()
    await one.last_seen.write()
    replicas.clock.now += 101
    due = await due_on(two, 60.0)
    replicas.clock.now += 60
    await three.cleanup.run_once()
    assert await state_of(replicas, session) is SessionState.IDLE
    await one.call(session)
    assert not await two.idle.is_idle(due)
    await two.idle.lay_to_rest(due)
    await two.idle.forget(due.row)
    assert await state_of(replicas, session) is SessionState.OPEN
    assert await one.call(session) == RESULT and replicas.upstream.opened == 2


async def test_two_replicas_that_tend_the_same_sessions_do_it_once() -> None:
    """A lease may have two believers for a moment: what they write is written once, and no session is lost."""
    replicas = Replicas(LIMITS)
    one, two, three = replicas.three()
    sessions = [await three.initialize() for _ in range(30)]
    ended: list[str] = []

    async def note(key: str) -> None:
        ended.append(key)

    for replica in (one, two):
        replica.sessions.on_end.append(note)
    await three.last_seen.write()
    replicas.clock.now += 101
    await asyncio.gather(one.cleanup.run_once(), two.cleanup.run_once())
    assert {await state_of(replicas, session) for session in sessions} == {SessionState.IDLE}
    assert replicas.upstream.alive == set()
    replicas.clock.now += 1101
    await asyncio.gather(one.cleanup.run_once(), two.cleanup.run_once())
    assert await replicas.memory.rows.count("sessions") == 0
    assert sorted(ended) == sorted(map(session_key, sessions))
