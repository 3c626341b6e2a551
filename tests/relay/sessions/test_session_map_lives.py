"""Sessions through their lives: shared by processes, ended while used, resting, revoked, counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from adapter.errors import LimitReached, SessionUnknown
from adapter.relay.sessions.session_map import SessionLimits
from adapter.rules.access.sessions import SessionState, session_key
from adapter.state.port import Store
from adapter.state.sqlite import SqliteStore
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.upstream.scripted import Expect, ScriptedAnswer, ScriptedReply, ScriptedUpstream
from tests.relay.relaying import INITIALIZE, Relaying, pieces, whole

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"save"}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'
SSE = (("Content-Type", "text/event-stream"),)


def opened(name: str) -> ScriptedAnswer:
    body = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'
    return ScriptedAnswer(
        headers=(("Content-Type", "application/json"), ("Mcp-Session-Id", name)), chunks=[body]
    )


def delete(name: str) -> Expect:
    return Expect("DELETE", headers={"mcp-session-id": name})


@dataclass
class Forgetful:
    """An upstream that lost its sessions, and opens new ones only when as many ask as it waits for."""

    waits_for: int
    alive: set[str] = field(default_factory=set)
    opened: int = 0
    asking: int = 0
    _everybody: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        session = header(request.headers, "mcp-session-id")
        if b'"initialize"' in request.body:
            self.asking += 1
            if self.asking == self.waits_for:
                self._everybody.set()
            await asyncio.wait_for(self._everybody.wait(), 5)
            self.opened += 1
            self.alive.add(f"new-{self.opened}")
            return ScriptedReply(opened(f"new-{self.opened}"))
        if session not in self.alive:
            return ScriptedReply(ScriptedAnswer(404))
        if request.method == "DELETE":
            self.alive.discard(session or "")
        return ScriptedReply(ScriptedAnswer(chunks=[RESULT]))

    async def close(self) -> None:
        """Nothing to drop."""


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two processes' stores on one file."""
    both = SqliteStore(tmp_path / "state.sqlite3"), SqliteStore(tmp_path / "state.sqlite3")
    for store in both:
        await store.open()
    yield both
    for store in both:
        await store.close()


# --- shared ---------------------------------------------------------------------------------------------------


async def test_two_processes_renew_one_session_once(stores: tuple[Store, Store]) -> None:
    """Both see the 404 and initialize; one mapping is kept, and the other upstream session is closed."""
    upstream = Forgetful(waits_for=2)
    one, two = (Relaying(upstream, store=store) for store in stores)
    session = await one.open()
    answers = [*await asyncio.gather(one.post(CALL, session), two.post(CALL, session))]
    assert answers == [RESULT, RESULT]
    assert upstream.opened == 2 and len(upstream.alive) == 1
    (kept,) = upstream.alive
    for process in (one, two):
        found = await process.sessions.find(session, "one", "anonymous")
        assert found.upstream_session == kept and found.generation == 1


async def test_process_that_comes_later_takes_the_renewed_mapping(stores: tuple[Store, Store]) -> None:
    """Where another process has renewed the session already, its mapping is read, nothing opened."""
    upstream = Forgetful(waits_for=1)
    one, two = (Relaying(upstream, store=store) for store in stores)
    session = await one.open()
    await two.sessions.find(session, "one", "anonymous")
    assert await one.post(CALL, session) == RESULT
    assert await two.post(CALL, session) == RESULT
    assert upstream.opened == 1 and len(upstream.alive) == 1


async def test_session_ended_by_another_process_is_not_renewed(stores: tuple[Store, Store]) -> None:
    """The upstream's 404 makes this process look into the store, where the session has ended."""
    upstream = Forgetful(waits_for=1, alive={"up-1"})
    one, two = (Relaying(upstream, store=store) for store in stores)
    session = await one.open()
    await two.sessions.find(session, "one", "anonymous")
    await whole(await one.relay.handle(one.ask(b"", session, method="DELETE")))
    with pytest.raises(SessionUnknown):
        await two.post(CALL, session)
    assert upstream.opened == 0 and upstream.alive == set()


# --- ended ----------------------------------------------------------------------------------------------------


async def test_delete_during_a_call_ends_the_session_and_not_the_call() -> None:
    """The call that is under way gets its answer; the next one is told to initialize again."""
    finish = asyncio.Event()
    upstream = ScriptedUpstream(
        [
            (
                Expect("POST", CALL),
                ScriptedAnswer(headers=SSE, chunks=[b": hi\n\n", finish, b"data: " + RESULT + b"\n\n"]),
            ),
            (delete("up-1"), ScriptedAnswer()),
        ]
    )
    relaying = Relaying(upstream)
    session = await relaying.open()
    answer = await relaying.relay.handle(relaying.ask(CALL, session))
    assert await anext(pieces(answer)) == b": hi\n\n"
    await whole(await relaying.relay.handle(relaying.ask(b"", session, method="DELETE")))
    with pytest.raises(SessionUnknown):
        await relaying.post(CALL, session)
    finish.set()
    assert await whole(answer) == b"data: " + RESULT + b"\n\n"
    assert upstream.unplayed == [] and await relaying.store.count("sessions") == 0


async def test_call_that_meets_a_404_after_its_session_was_deleted_opens_nothing() -> None:
    """A renewal on behalf of an ended session would leave an upstream session that nobody closes."""
    answered = asyncio.Event()
    upstream = ScriptedUpstream(
        [(Expect("POST", CALL), ScriptedAnswer(404, after=answered)), (delete("up-1"), ScriptedAnswer())]
    )
    relaying = Relaying(upstream)
    session = await relaying.open()
    call = asyncio.create_task(relaying.post(CALL, session))
    while not upstream.requests:
        await asyncio.sleep(0)
    await whole(await relaying.relay.handle(relaying.ask(b"", session, method="DELETE")))
    answered.set()
    with pytest.raises(SessionUnknown):
        await call
    assert [request.method for request in upstream.requests] == ["POST", "DELETE"]


async def test_revoked_session_says_why() -> None:
    """Its client is told the reason and what to do; nothing goes upstream, also not after its DELETE."""
    relaying = Relaying(ScriptedUpstream())
    session = await relaying.open(state=SessionState.REVOKED)
    relaying = Relaying(ScriptedUpstream(), store=relaying.store)
    with pytest.raises(SessionUnknown, match=r"the tools changed\. Send initialize again"):
        await relaying.post(CALL, session)


# --- resting --------------------------------------------------------------------------------------------------

RESTING = SessionLimits(idle_ttl=10.0, tombstone_ttl=100.0)


async def test_tombstone_is_revived_in_time_and_forgotten_after() -> None:
    """Idle, it rests; within its time it comes back behind the same id; later nothing is left of it."""
    upstream = ScriptedUpstream([(delete("up-1"), ScriptedAnswer())])
    relaying = Relaying(upstream, limits=RESTING)
    session = await relaying.open()
    relaying.clock.now += 11
    await relaying.janitor.go_round()
    assert upstream.unplayed == [] and relaying.sessions.active == 0

    upstream.then(Expect("POST", INITIALIZE), opened("up-2"))
    upstream.then(Expect("POST", lambda body: b"notifications/initialized" in body), ScriptedAnswer(202))
    upstream.then(Expect("POST", CALL, {"mcp-session-id": "up-2"}), ScriptedAnswer(chunks=[RESULT]))
    relaying.clock.now += 50
    assert await relaying.post(CALL, session) == RESULT

    upstream.then(delete("up-2"), ScriptedAnswer())
    relaying.clock.now += 11
    await relaying.janitor.go_round()
    relaying.clock.now += 111
    await relaying.janitor.go_round()
    assert upstream.unplayed == [] and await relaying.store.count("sessions") == 0
    with pytest.raises(SessionUnknown):
        await relaying.post(CALL, session)


async def test_session_without_revival_ends_when_it_idles() -> None:
    """With ``sessions.allow_revival: false`` a tombstone is never woken, the janitor in time or not."""
    relaying = Relaying(ScriptedUpstream([(delete("up-1"), ScriptedAnswer())]))
    relaying.limits = SessionLimits(idle_ttl=10.0, allow_revival=False)
    relaying.__post_init__()
    session = await relaying.open()
    relaying.clock.now += 11
    await relaying.janitor.go_round()
    with pytest.raises(SessionUnknown):
        await relaying.post(CALL, session)


async def test_session_with_a_call_under_way_does_not_rest() -> None:
    """However long a call takes, its session is in use until the answer has ended."""
    finish = asyncio.Event()
    answer = ScriptedAnswer(headers=SSE, chunks=[b": hi\n\n", finish, b"data: " + RESULT + b"\n\n"])
    relaying = Relaying(ScriptedUpstream([(Expect("POST", CALL), answer)]), limits=RESTING)
    session = await relaying.open()
    running = await relaying.relay.handle(relaying.ask(CALL, session))
    await anext(pieces(running))
    relaying.clock.now += 1000
    await relaying.janitor.go_round()
    finish.set()
    await whole(running)
    assert relaying.sessions.active == 1


# --- counted --------------------------------------------------------------------------------------------------


async def test_sessions_that_are_being_opened_count_towards_max_active() -> None:
    """Of two that open at once one is refused, and one that failed to open gives its place back."""
    go_on = asyncio.Event()
    relaying = Relaying(
        ScriptedUpstream([(Expect("POST", INITIALIZE), ScriptedAnswer(500, after=go_on))]),
        limits=SessionLimits(max_active=1),
    )

    first = asyncio.create_task(relaying.post_first(INITIALIZE))
    await asyncio.sleep(0)
    with pytest.raises(LimitReached, match=r"sessions\.max_active"):
        await relaying.post_first(INITIALIZE)
    go_on.set()
    await first
    assert relaying.sessions.active == 0


async def test_in_flight_is_given_back_when_the_client_goes() -> None:
    """Neither a stream that was left nor an exchange that was cancelled counts any longer."""
    upstream = ScriptedUpstream()
    relaying = Relaying(upstream, limits=SessionLimits(max_in_flight=1))
    session = await relaying.open()
    for _ in range(3):
        upstream.then(
            Expect("POST", CALL), ScriptedAnswer(headers=SSE, chunks=[b": hi\n\n", asyncio.Event()])
        )
        answer = await relaying.relay.handle(relaying.ask(CALL, session))
        await anext(pieces(answer))
        with pytest.raises(LimitReached):
            await relaying.post(CALL, session)
        await answer.close()
    upstream.then(Expect("POST", CALL), ScriptedAnswer(chunks=[RESULT]))
    assert orjson.loads(await relaying.post(CALL, session))["id"] == 1
    assert await relaying.store.get("sessions", session_key(session)) is not None
