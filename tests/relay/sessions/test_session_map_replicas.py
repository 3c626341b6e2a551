"""One session map on several replicas: what one of them does to a session, all know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from adapter.errors import SessionUnknown, StoreUnavailable
from adapter.relay.sessions.session_map import SessionLimits
from adapter.rules.access.sessions import SessionState, decode, session_key
from adapter.state.port import Row
from adapter.wire.eras import Era
from tests.relay.relaying import Relaying
from tests.relay.replicating import CALL, RESULT, Replicas
from tests.scripted import ScriptedUpstream
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until


async def heard() -> None:
    """Let the words that were said arrive."""
    await asyncio.sleep(0)


@pytest.fixture
def house() -> Replicas:
    """Replicas with words of others."""
    return Replicas()


@pytest.fixture(params=[False, True], ids=["", "echoes"])
def replicas(request: pytest.FixtureRequest) -> Replicas:
    """Replicas with words of others, and such as also hear of their own writes."""
    return Replicas(memory=SharedMemory(echoes=request.param))


async def test_call_in_a_session_at_hand_makes_no_round_trip() -> None:
    """However many calls; one read is all that a session costs a replica that has not seen it."""
    one, two, _ = Replicas().three()
    session = await one.initialize()
    await heard()
    for replica, reads in ((one, 0), (two, 1)):
        before = replica.view.calls.copy()
        for _ in range(10):
            await replica.call(session)
        assert replica.view.calls - before == ({"get": reads} if reads else {})


async def test_revoked_session_says_why_on_every_replica(replicas: Replicas) -> None:
    """Also on those that had it at hand."""
    one, two, three = replicas.three()
    session = await one.initialize()
    await two.call(session)
    await three.sessions.revoke(session_key(session), "the tools changed")
    await heard()
    for replica in (one, two, three):
        with pytest.raises(SessionUnknown, match="the tools changed"):
            await replica.call(session)


async def test_call_that_is_under_way_elsewhere_goes_on_when_its_session_ends(house: Replicas) -> None:
    """A DELETE ends the session, and no call of it."""
    one, two, _ = house.three()
    session = await one.initialize()
    go_on = asyncio.Event()
    handler = house.upstream.handler

    async def slow(message: dict[str, object]) -> object:
        await go_on.wait()
        return await handler(message)

    house.upstream.handler = slow  # type: ignore[assignment]  # it returns what the handler returns
    calling = asyncio.create_task(one.call(session))
    await until(lambda: one.sessions.opened()[0].in_flight)
    await two.end(session)
    go_on.set()
    assert await calling == RESULT


async def test_replica_that_hears_nothing_asks_again(house: Replicas) -> None:
    """While the words of others do not arrive each session is confirmed by its version before it is used."""
    one, two, _ = house.three()
    session, other = await one.initialize(), await one.initialize()
    stream = await one.listen(session)
    kept = await one.listen(other)
    one.view.deaf = True
    await two.end(session)
    one.view.unsure()
    assert await stream.ended()
    with pytest.raises(SessionUnknown):
        await one.call(session)
    before = one.view.calls["get"]
    for _ in range(5):
        assert await one.call(other) == RESULT
    assert one.view.calls["get"] <= before + 1
    assert not house.upstream.streams[1].aborted.is_set()
    await kept.answer.close()


async def test_what_cannot_be_confirmed_is_not_served(house: Replicas) -> None:
    """The store is down and words may have been missed: the old value is not trusted, nor forgotten."""
    one, two, _ = house.three()
    session = await one.initialize()
    await one.call(session)
    one.view.down = True
    assert await one.call(session) == RESULT
    one.view.unsure()
    with pytest.raises(StoreUnavailable):
        await one.call(session)
    await two.end(session)
    one.view.down = False
    with pytest.raises(SessionUnknown):
        await one.call(session)


async def test_row_of_another_version_ends_no_stream(house: Replicas) -> None:
    """Another replica may know it; what this one does not understand it neither serves nor ends."""
    one, two, _ = house.three()
    odd, session = await one.initialize(), await one.initialize()
    streams = [await one.listen(odd), await one.listen(session)]
    await two.view.put("sessions", session_key(odd), b"?")
    await two.end(session)
    assert await streams[1].ended()
    assert not streams[0].stream.aborted.is_set()
    await streams[0].answer.close()


async def test_word_that_overtakes_a_read_is_not_lost(house: Replicas) -> None:
    """The session was ended while its row was being read: what was read is not believed for longer than that."""
    one, two, _ = house.three()
    session = await one.initialize()
    read, go_on = asyncio.Event(), asyncio.Event()
    get = two.view.get

    async def slow(table: str, key: str) -> object:
        row = await get(table, key)
        read.set()
        await go_on.wait()
        return row

    two.view.get = slow  # type: ignore[method-assign,assignment]  # the double's answer comes late
    calling = asyncio.create_task(two.call(session))
    await read.wait()
    await one.end(session)
    await heard()
    go_on.set()
    with pytest.raises(SessionUnknown):
        await calling


async def test_renewal_by_one_replica_is_known_to_the_others(replicas: Replicas) -> None:
    """They go on in the new upstream session, without a second initialize."""
    one, two, three = replicas.three()
    session = await one.initialize()
    await two.call(session)
    replicas.upstream.alive.clear()
    assert await one.call(session) == RESULT
    assert await two.call(session) == RESULT
    assert await three.call(session) == RESULT
    assert replicas.upstream.opened == 2


async def test_replica_that_hears_of_a_renewal_trusts_its_lists_no_longer(house: Replicas) -> None:
    """A server that forgot a session may be another version of itself."""
    one, two, _ = house.three()
    session = await one.initialize()
    await two.call(session)
    changed: list[str] = []
    two.sessions.cache.on_renewed = changed.append
    house.upstream.alive.clear()
    await one.call(session)
    await heard()
    await two.call(session)
    await two.call(session)
    assert changed == ["one"]


async def test_calls_that_others_may_have_taken_count_as_guarded() -> None:
    """Their answers may come on a stream of this replica, which does not know of them."""
    one, two, _ = Replicas().three()
    session = await one.initialize()
    await two.call(session)
    for replica in (one, two):
        assert replica.sessions.opened()[0].guarded.everything


async def test_end_closes_the_upstream_session_that_another_replica_has_opened_meanwhile(
    house: Replicas,
) -> None:
    """The replica that ends the session has not heard of the renewal: nothing is left open at the upstream."""
    one, two, _ = house.three()
    session = await one.initialize()
    await two.call(session)
    two.view.deaf = True
    house.upstream.alive.clear()
    await one.call(session)
    await two.end(session)
    with pytest.raises(SessionUnknown):
        await one.call(session)
    await one.cleanup.run_once()
    assert house.upstream.alive == set() and await house.memory.rows.count("sessions") == 0


async def test_session_used_on_one_replica_is_not_idle_for_another() -> None:
    """The one that saw it last writes so before the other would lay it to rest, also while a call takes long."""
    replicas = Replicas(SessionLimits(idle_ttl=100.0, tombstone_ttl=100.0))
    one, two, _ = replicas.three()
    session, forgotten = await one.initialize(), await one.initialize()
    await one.last_seen.write()
    for _ in range(20):
        replicas.clock.now += one.last_seen.interval
        await one.sessions.find(session, "one", "anonymous")
        await one.last_seen.write()
        await two.cleanup.run_once()
    row = await replicas.memory.rows.get("sessions", session_key(session))
    assert row is not None and decode(row.value).state is SessionState.OPEN
    row = await replicas.memory.rows.get("sessions", session_key(forgotten))
    assert row is None or decode(row.value).state is SessionState.IDLE
    known = one.sessions.opened()[0]
    known.in_flight = 1
    for _ in range(20):
        replicas.clock.now += one.last_seen.interval
        await one.last_seen.write()
        await two.cleanup.run_once()
    row = await replicas.memory.rows.get("sessions", session_key(session))
    assert row is not None and decode(row.value).state is SessionState.OPEN


async def test_session_laid_to_rest_elsewhere_is_opened_anew_by_its_next_call(replicas: Replicas) -> None:
    """The replica that had it at hand does not send the call into a session that is closed."""
    replicas.limits = SessionLimits(idle_ttl=10.0, tombstone_ttl=100.0)
    one, two, _ = replicas.three()
    session = await one.initialize()
    await one.last_seen.write()
    replicas.clock.now += 11
    await two.cleanup.run_once()
    assert replicas.upstream.alive == set()
    assert await one.call(session) == RESULT
    assert replicas.upstream.opened == 2 and len(replicas.upstream.alive) == 1


async def test_row_that_was_written_although_that_seemed_to_fail_is_taken_back(house: Replicas) -> None:
    """Its client was told that no session was opened, and knows no id."""
    one = house.start()
    one.view.swallows = 1
    with pytest.raises(StoreUnavailable):
        await one.initialize()
    assert await house.memory.rows.count("sessions") == 0 and house.upstream.alive == set()


async def test_session_ended_while_another_replica_is_about_to_listen_gets_no_stream(house: Replicas) -> None:
    """The word comes while the upstream is still asked for the stream."""
    one, two, _ = house.three()
    session = await one.initialize()
    send = house.upstream.send
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: object, read_timeout: float | None) -> object:
        reply = await send(request, read_timeout)  # type: ignore[arg-type]  # handed on as it came
        if getattr(request, "method", "") == "GET":
            asked.set()
            await go_on.wait()
        return reply

    house.upstream.send = slow  # type: ignore[method-assign,assignment]  # the double's answer comes late
    listening = asyncio.create_task(two.listen(session))
    await asked.wait()
    await one.end(session)
    await heard()
    go_on.set()
    with pytest.raises(SessionUnknown):
        await (await listening).ended()


async def test_one_process_over_a_store_of_its_own_asks_it_no_more_than_before() -> None:
    """Nobody else writes there, so nothing is confirmed."""
    one = Relaying(ScriptedUpstream())
    session = await one.open()
    known = await one.sessions.find(session, "one", "anonymous")
    assert not one.store.shared and known.epoch == one.sessions.cache.epoch == 0


async def test_session_that_another_version_wrote_is_unknown() -> None:
    """While replicas are upgraded one by one, its client initializes again; nothing fails unexpectedly."""
    one, two, _ = Replicas().three()
    session = await one.initialize()
    await heard()
    await two.store.put("sessions", session_key(session), b'{"format":1000}')
    await heard()
    with pytest.raises(SessionUnknown):
        await one.call(session)
    with pytest.raises(SessionUnknown):
        await two.call(session)


class LateAnswers(ReplicaStore):
    """A store whose answer to a write of a session comes after others have heard of it and written theirs."""

    def __init__(self, memory: SharedMemory) -> None:
        super().__init__(memory)
        self.meanwhile: Callable[[str], Awaitable[object]] | None = None

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """See Store."""
        row = await super().put(table, key, value, expected=expected, due=due)
        if table == "sessions" and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile(key)
            await heard()
        return row


async def test_kept_session_that_others_revoke_before_it_is_known_here(house: Replicas) -> None:
    """The word of it comes before the answer to the write that made the session, and counts all the same."""
    store = LateAnswers(house.memory)
    house.memory.replicas.append(store)
    one = house.start(store=store, serves_missing=True)
    other = house.start()
    store.meanwhile = lambda key: other.sessions.revoke(key, "the tools changed")
    ask = one.ask(CALL, None, era=Era.LEGACY)
    one.server.issues_ids = True
    await one.principal_sessions.find(ask)
    with pytest.raises(SessionUnknown, match="the tools changed"):
        await one.principal_sessions.find(ask)
