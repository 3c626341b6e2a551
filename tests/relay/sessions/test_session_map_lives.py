"""Sessions through their lives: ended while used, resting, revoked, counted."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from adapter.errors import LimitReached, SessionUnknown
from adapter.relay.sessions.session_map import SessionLimits
from adapter.rules.access.sessions import SessionState, session_key
from tests.relay.relaying import INITIALIZE, Relaying, pieces, whole
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

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
    await relaying.cleanup.run_once()
    assert upstream.unplayed == [] and relaying.sessions.active == 0

    upstream.then(Expect("POST", INITIALIZE), opened("up-2"))
    upstream.then(Expect("POST", lambda body: b"notifications/initialized" in body), ScriptedAnswer(202))
    upstream.then(Expect("POST", CALL, {"mcp-session-id": "up-2"}), ScriptedAnswer(chunks=[RESULT]))
    relaying.clock.now += 50
    assert await relaying.post(CALL, session) == RESULT

    upstream.then(delete("up-2"), ScriptedAnswer())
    relaying.clock.now += 11
    await relaying.cleanup.run_once()
    relaying.clock.now += 111
    await relaying.cleanup.run_once()
    assert upstream.unplayed == [] and await relaying.store.count("sessions") == 0
    with pytest.raises(SessionUnknown):
        await relaying.post(CALL, session)


async def test_session_without_revival_ends_when_it_idles() -> None:
    """With ``sessions.allow_revival: false`` a tombstone is never woken, the cleanup in time or not."""
    relaying = Relaying(ScriptedUpstream([(delete("up-1"), ScriptedAnswer())]))
    relaying.limits = SessionLimits(idle_ttl=10.0, allow_revival=False)
    relaying.__post_init__()
    session = await relaying.open()
    relaying.clock.now += 11
    await relaying.cleanup.run_once()
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
    await relaying.cleanup.run_once()
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
