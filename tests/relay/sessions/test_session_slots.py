"""``sessions.max_active`` over all replicas: never more open sessions, and no slot is lost for ever."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import LimitReached, StoreUnavailable, UpstreamUnreachable
from adapter.relay.sessions.session_map import SessionLimits
from adapter.relay.sessions.session_slots import CHECKED, OPENING, TABLE, SessionSlots
from adapter.rules.access.sessions import session_key
from tests.relay.relaying import Clock
from tests.relay.replicating import RESULT, Replica, Replicas
from tests.relay.sharing import LiveUpstream


async def attempt(replica: Replica) -> str | LimitReached:
    try:
        return await replica.initialize()
    except LimitReached as error:
        return error


async def test_limit_is_exact_however_many_replicas_open_sessions_at_once() -> None:
    """Of forty clients at three replicas seven get a session, and the others the usual refusal."""
    replicas = Replicas(SessionLimits(max_active=7)).three()
    found = await asyncio.gather(*(attempt(replicas[number % 3]) for number in range(40)))
    refusals = [each for each in found if isinstance(each, LimitReached)]
    assert len(refusals) == 33 and "sessions.max_active" in str(refusals[0])
    assert refusals[0].data == {"limit": 7, "setting": "sessions.max_active", "retry_after": 5}
    assert {await each.sessions.count() for each in replicas} == {7}


async def test_session_that_ends_anywhere_makes_room_everywhere() -> None:
    """Ended by its client, revoked, or laid to rest: each on another replica than it was opened on."""
    replicas = Replicas(SessionLimits(max_active=3, idle_ttl=10.0, tombstone_ttl=100.0))
    one, two, three = replicas.three()
    first, second, _ = [await one.initialize() for _ in range(3)]
    await two.end(first)
    await two.sessions.revoke(session_key(second), "the tools changed")
    replicas.clock.now += 11
    await three.cleanup.run_once()
    assert await one.sessions.count() == 0
    found = await asyncio.gather(*(attempt(two) for _ in range(4)))
    assert sum(isinstance(each, LimitReached) for each in found) == 1


async def test_idle_session_needs_a_slot_to_come_back() -> None:
    """It is refused while there is none, and comes back as soon as there is one; while open it has one slot."""
    replicas = Replicas(SessionLimits(max_active=1, idle_ttl=10.0, tombstone_ttl=100.0))
    one, two, _ = replicas.three()
    idle = await one.initialize()
    replicas.clock.now += 11
    await two.cleanup.run_once()
    other = await two.initialize()
    with pytest.raises(LimitReached, match=r"sessions\.max_active"):
        await one.call(idle)
    await one.end(other)
    for answer in await asyncio.gather(one.call(idle), two.call(idle)):
        assert answer == RESULT
    assert await one.sessions.count() == 1
    with pytest.raises(LimitReached):
        await two.initialize()


async def test_session_that_could_not_be_opened_gives_its_slot_back() -> None:
    """Also one that could not be revived."""
    replicas = Replicas(SessionLimits(max_active=1, idle_ttl=10.0, tombstone_ttl=100.0))
    one, two, _ = replicas.three()
    replicas.upstream.away = True
    with pytest.raises(UpstreamUnreachable):
        await one.initialize()
    replicas.upstream.away = False
    idle = await two.initialize()
    replicas.clock.now += 11
    await one.cleanup.run_once()
    replicas.upstream.away = True
    with pytest.raises(UpstreamUnreachable):
        await one.call(idle)
    assert await one.sessions.count() == 0


async def test_sessions_of_earlier_processes_count_though_none_is_known() -> None:
    """Nothing is read at the start, and another session would be one too many."""
    replicas = Replicas(SessionLimits(max_active=20))
    before = replicas.start()
    sessions = [await before.initialize() for _ in range(20)]
    after = replicas.start()
    assert after.view.calls.total() == 0 and after.sessions.active == 0
    with pytest.raises(LimitReached, match=r"sessions\.max_active"):
        await after.initialize()
    assert await after.call(sessions[0]) == RESULT
    await after.end(sessions[0])
    assert await after.sessions.count() == 19


async def test_session_that_was_opened_without_a_limit_counts_when_it_is_used() -> None:
    """An operator may set the limit later."""
    replicas = Replicas()
    session = await replicas.start().initialize()
    limited = replicas.start(limits=SessionLimits(max_active=1))
    assert await limited.call(session) == RESULT
    with pytest.raises(LimitReached):
        await limited.initialize()


async def test_nothing_is_written_where_no_limit_is_set() -> None:
    """A feature that is off costs nothing."""
    replicas = Replicas()
    one = replicas.start()
    await one.end(await one.initialize())
    assert await replicas.memory.rows.count(TABLE) == 0
    assert one.view.calls == {"put": 1, "delete": 1}


class Tidying:
    """The slots of a store, and a replica's cleanup of them."""

    def __init__(self, replica: Replica, limit: int = 1) -> None:
        self.now = Clock()
        self.clock = Clock(replica.clock())
        self.slots = SessionSlots(replica.view, limit, self.clock, self.now)

    async def after(self, seconds: float) -> int:
        """The number of slots after a round of the cleanup that much later."""
        self.now.now += seconds
        self.clock.now += seconds
        await self.slots.tidy()
        return await self.slots.count()


async def test_slot_of_a_process_that_died_while_it_opened_a_session_comes_free() -> None:
    """Not before it was seen without a session for longer than any session takes to open."""
    one, two, _ = Replicas(SessionLimits(max_active=1)).three()
    assert one.sessions.slots is not None
    await one.sessions.slots.take("dying")
    cleanup = Tidying(two)
    assert await cleanup.after(OPENING + 1) == 1
    assert await cleanup.after(OPENING - 1) == 1
    assert await cleanup.after(2) == 0
    await two.initialize()


async def test_clock_that_runs_ahead_takes_no_slot_of_a_session_that_opens() -> None:
    """A slot that is renewed meanwhile is another one."""
    one, two, _ = Replicas(SessionLimits(max_active=1)).three()
    cleanup = Tidying(two)
    cleanup.clock.now += 1_000_000
    assert one.sessions.slots is not None
    await one.sessions.slots.take("some")
    assert await cleanup.after(0) == 1
    await one.sessions.slots.take("some")
    assert await cleanup.after(OPENING + 1) == 1
    assert await cleanup.after(OPENING + 1) == 0


async def test_slots_of_open_sessions_are_kept() -> None:
    """Looked at again and again, and those of another version with them."""
    replicas = Replicas(SessionLimits(max_active=300))
    one, two, _ = replicas.three()
    for _ in range(250):
        await one.initialize()
    await replicas.memory.rows.put("sessions", "odd", b"?")
    assert one.sessions.slots is not None
    await one.sessions.slots.take("odd")
    cleanup = Tidying(two)
    for _ in range(3):
        assert await cleanup.after(CHECKED + 1) == 251


async def test_slot_of_a_session_whose_end_was_cut_short_comes_free() -> None:
    """The row is gone and the slot is not: the process died in between."""
    one, two, _ = Replicas(SessionLimits(max_active=1)).three()
    session = await one.initialize()
    await one.view.delete("sessions", session_key(session))
    cleanup = Tidying(two)
    await cleanup.after(CHECKED)
    assert await cleanup.after(OPENING + 1) == 0


async def test_slot_is_ones_own_where_the_store_only_seemed_to_fail() -> None:
    """The client is told that the store failed; the slot comes free in time."""
    replicas = Replicas(SessionLimits(max_active=1), upstream=LiveUpstream())
    one, two, _ = replicas.three()
    one.view.swallows = 1
    with pytest.raises(StoreUnavailable):
        await one.initialize()
    assert replicas.upstream.opened == 0
    cleanup = Tidying(two)
    await cleanup.after(OPENING + 1)
    assert await cleanup.after(OPENING + 1) == 0


async def test_place_that_took_too_long_is_taken_anew() -> None:
    """It may have been given to another meanwhile: then the session is not created."""
    one, two, _ = Replicas(SessionLimits(max_active=1)).three()
    now = Clock()
    slots = SessionSlots(one.view, 1, one.clock, now)
    slot = await slots.take("slow")
    now.now += OPENING / 2 - 1
    assert await slots.keep("slow", slot) is slot
    now.now += 2
    await slots.give_back("slow", slot)
    await two.initialize()
    with pytest.raises(LimitReached):
        await slots.keep("slow", slot)
