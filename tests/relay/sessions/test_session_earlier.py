"""The sessions of an earlier process: all count from the start, and each is there when it is asked for."""

from __future__ import annotations

import pytest

from adapter.errors import LimitReached
from adapter.relay.sessions.session_map import LOADED, SessionLimits
from adapter.rules.access.sessions import SessionState, session_key
from adapter.upstream.scripted import Expect, ScriptedAnswer, ScriptedUpstream
from tests.relay.relaying import INITIALIZE, Relaying

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"save"}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'
JSON = (("Content-Type", "application/json"),)
MANY = LOADED + 200
NO_LIMITS = SessionLimits()


async def after_a_restart(
    count: int, upstream: ScriptedUpstream, limits: SessionLimits = NO_LIMITS
) -> tuple[Relaying, list[str]]:
    """A process that has not loaded yet, and the ids of open sessions that another one left, in order of their keys."""
    before = Relaying(ScriptedUpstream())
    sessions = sorted([await before.open() for _ in range(count)], key=session_key)
    for state in (SessionState.IDLE, SessionState.REVOKED, SessionState.ENDED):
        await before.open(state=state)
    return Relaying(upstream, store=before.store, clock=before.clock, limits=limits), sessions


async def test_all_count_though_few_are_known() -> None:
    """Tombstones and revoked sessions are not among them; those that are asked for are known."""
    after, sessions = await after_a_restart(MANY, ScriptedUpstream())
    last = session_key(sessions[-1])
    await after.sessions.load([last, "gone"])
    assert after.sessions.active == MANY
    known = {session.key for session in after.sessions.opened()}
    assert last in known and len(known) <= LOADED + 1


async def test_session_that_is_not_known_is_used_and_ended_like_any_other() -> None:
    """It counts once all the while, and not when it has ended."""
    steps = [
        (Expect("POST", CALL), ScriptedAnswer(headers=JSON, chunks=[RESULT])),
        (Expect("DELETE", headers={"mcp-session-id": "up-1"}), ScriptedAnswer()),
    ]
    after, sessions = await after_a_restart(MANY, ScriptedUpstream(steps))
    await after.sessions.load()
    assert session_key(sessions[-1]) not in {session.key for session in after.sessions.opened()}
    assert await after.post(CALL, sessions[-1]) == RESULT
    assert after.sessions.active == MANY
    await after.relay.handle(after.ask(b"", sessions[-1], method="DELETE"))
    assert after.sessions.active == MANY - 1


async def test_sessions_that_are_not_known_are_laid_to_rest_and_revoked() -> None:
    """Their number follows."""
    closings = [(Expect("DELETE"), ScriptedAnswer()) for _ in range(500)]
    limits = SessionLimits(idle_ttl=10.0, tombstone_ttl=100.0)
    before = Relaying(ScriptedUpstream(), limits=limits)
    sessions = [await before.open() for _ in range(MANY)]
    after = Relaying(ScriptedUpstream(closings), store=before.store, clock=before.clock, limits=limits)
    await after.sessions.load()
    known = {session.key for session in after.sessions.opened()}
    unknown = [key for key in map(session_key, sessions) if key not in known]
    await after.sessions.revoke(unknown[0], "the tools changed")
    assert after.sessions.active == MANY - 1
    after.clock.now += 11
    await after.cleanup.run_once()
    assert after.sessions.active == MANY - 1 - 500


async def test_limit_holds_for_those_that_are_not_known() -> None:
    """Another session would be one too many."""
    limits = SessionLimits(max_active=MANY)
    after, _ = await after_a_restart(MANY, ScriptedUpstream(), limits=limits)
    await after.sessions.load()
    with pytest.raises(LimitReached, match=r"sessions\.max_active"):
        await after.post_first(INITIALIZE)
