"""What finding its session costs a call, measured on the session map itself."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from adapter.relay.sessions.session_map import SessionLimits, Sessions
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
)
from adapter.state.memory import MemoryStore
from adapter.state.port import Row

OPEN_SESSIONS = 1000
ROUNDS = 5
T = TypeVar("T")


class UnreadStore(MemoryStore):
    """A store that fails the measurement when the hot path asks it for a session."""

    async def get(self, table: str, key: str) -> Row | None:
        raise AssertionError("The hot path read the store.")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits. One that does, for a thread or a socket, is an error."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise AssertionError("The hot path waited for something.")


def state_microseconds() -> float:
    """µs of one call's work on the session map: found, counted in, counted out. The best of some rounds."""
    sessions = Sessions(UnreadStore(), SessionLimits(max_in_flight=100), time.time)
    record = SessionRecord(
        server="bench",
        principal="bench",
        handshake=Handshake(b"{}"),
        upstream=UpstreamSession("upstream", "2025-11-25"),
        state=SessionState.OPEN,
        times=SessionTimes(0.0, 0.0),
    )
    ids = [at_once(sessions.create(record)) for _ in range(OPEN_SESSIONS)]
    return min(_round(sessions, ids) for _ in range(ROUNDS))


def _round(sessions: Sessions, ids: list[str]) -> float:
    begun = time.perf_counter()
    for session_id in ids:
        session = at_once(sessions.find(session_id, "bench", "bench"))
        sessions.in_flight.enter(session, "bench", 1)
        sessions.in_flight.leave(session, "bench", 1)
    return (time.perf_counter() - begun) / len(ids) * 1e6
