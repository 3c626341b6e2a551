"""Sessions that a process knows: those in use, and others for a while."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter

import pytest

from adapter.errors import SessionUnknown
from adapter.relay.sessions import session_cache
from adapter.relay.sessions.session import NONE_GUARDED, TABLE, Session
from adapter.relay.sessions.session_cache import KEPT, SessionCache
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
    session_key,
)
from adapter.state.port import STALE
from tests.relay.relaying import Relaying
from tests.relay.replicating import RESULT, Replicas
from tests.scripted import ScriptedUpstream
from tests.waiting import until

RECORD = SessionRecord(
    server="one",
    principal="anonymous",
    handshake=Handshake(b"{}"),
    upstream=UpstreamSession("up-1", "2025-11-25"),
    state=SessionState.OPEN,
    times=SessionTimes(0.0, 0.0),
)


async def confirm(session: Session) -> None:
    raise AssertionError(f"{session} has no streams")


@pytest.fixture
def cache() -> SessionCache:
    return SessionCache(confirm)


def kept(cache: SessionCache, key: str, last_seen: float = 0.0) -> Session:
    session = cache.keep(key, 1, RECORD, 0)
    session.last_seen = last_seen
    return session


async def test_what_nobody_uses_is_forgotten_after_a_while(cache: SessionCache) -> None:
    """Not before, and nothing that is in use."""
    kept(cache, "unused")
    kept(cache, "late", 1.0)
    for number, use in enumerate(("in_flight", "touched", "opening_streams")):
        setattr(kept(cache, f"used-{number}"), use, 1)
    streaming = kept(cache, "streams")
    streaming.streams = {object()}  # type: ignore[arg-type]  # any stream
    renewing = kept(cache, "renews")
    renewing.renewal = asyncio.ensure_future(asyncio.sleep(0))
    await cache.forget_unused(KEPT)
    assert set(cache.open) == {"late", "used-0", "used-1", "used-2", "streams", "renews"}
    await renewing.renewal


async def test_those_that_were_used_last_are_kept_where_there_are_too_many(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short ago the others were used."""
    monkeypatch.setattr(session_cache, "MOST_KNOWN", 5000)
    for number in range(6000):
        kept(cache, str(number), 1000.0 + (number >= 2000) * 500.0)
    assert cache.crowded.is_set()
    await cache.forget_unused(1600.0)
    assert not cache.crowded.is_set()
    assert len(cache.open) == 4000 and "2000" in cache.open


async def test_clock_that_goes_back_keeps_nothing_for_ever(cache: SessionCache) -> None:
    """What was used in the future, as it seems, is as good as unused."""
    kept(cache, "from the future", 10_000.0)
    kept(cache, "just now", 100.0)
    await cache.forget_unused(100.0)
    assert set(cache.open) == {"just now"}


async def test_more_are_known_while_more_are_in_use(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound on memory takes away no session that somebody works with."""
    monkeypatch.setattr(session_cache, "MOST_KNOWN", 100)
    for number in range(110):
        kept(cache, str(number)).in_flight = 1
    await cache.forget_unused(1e9)
    assert len(cache.open) == 110


async def test_session_that_somebody_still_holds_is_never_there_twice(cache: SessionCache) -> None:
    """A request that began before it was forgotten and one after it work with the same object."""
    session = kept(cache, "one")
    await cache.forget_unused(1e9)
    assert cache.open == {}
    assert cache.get("one") is session and cache.open == {"one": session}
    del session
    cache.open["one"].last_seen = 0.0
    await cache.forget_unused(1e9)
    assert cache.get("one") is None


async def test_forgotten_session_hears_that_it_is_over(cache: SessionCache) -> None:
    """Its streams would end with it."""
    session = kept(cache, "one")
    await cache.forget_unused(1e9)
    cache.drop("one")
    assert session.over and cache.get("one") is None


async def test_forgotten_session_is_read_again_and_answers_guarded_calls_with_care() -> None:
    """It is not known any more which of its calls were guarded, so all count as such."""
    replicas = Replicas()
    one = replicas.start()
    session = await one.initialize()
    one.sessions.opened()[0].guarded = NONE_GUARDED
    await one.last_seen.write()
    one.clock.now += KEPT
    await one.sessions.cache.forget_unused(one.clock())
    assert one.sessions.active == 0
    assert await one.call(session) == RESULT
    assert one.sessions.opened()[0].guarded.everything


async def test_times_that_are_not_written_keep_a_session_known() -> None:
    """They are written before it is forgotten, also behind a store that was down."""
    replicas = Replicas()
    replicas.limits = replicas.limits.__class__(idle_ttl=10 * KEPT)
    one = replicas.start()
    session = await one.initialize()
    one.clock.now += 5
    await one.call(session)
    one.clock.now += 2 * KEPT
    one.view.down = True
    with contextlib.suppress(Exception):
        await one.last_seen.write()
    await one.sessions.cache.forget_unused(one.clock())
    assert one.sessions.active == 1
    one.view.down = False
    await one.last_seen.write()
    await one.sessions.cache.forget_unused(one.clock())
    assert one.sessions.active == 0
    row = await replicas.memory.rows.get("sessions", session_key(session))
    assert row is not None and row.due == one.clock.now - 2 * KEPT + 10 * KEPT


async def test_round_of_last_seen_times_forgets_and_begins_at_once_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It need not wait for its time."""
    monkeypatch.setattr(session_cache, "MOST_KNOWN", 100)
    one = Replicas().start()
    for number in range(101):
        kept(one.sessions.cache, str(number))
    running = asyncio.create_task(one.last_seen.run())
    await until(lambda: not (one.sessions.active))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_read_during_which_the_row_changes_makes_nothing_fresh() -> None:
    """A word that comes while the row is read may be about a later one."""
    one = Replicas().start()
    session = await one.initialize()
    key = session_key(session)
    with one.sessions.cache.reading(key) as read:
        one.sessions.cache.row_changed(TABLE, key)
    assert read.epoch == STALE
    assert await one.call(session) == RESULT
    with pytest.raises(SessionUnknown):
        await one.call("unknown")


async def test_a_known_session_is_one_object_to_the_garbage_collector() -> None:
    """Its members are text and numbers, and its row in memory is none: 100,000 sessions hold no turn for long."""
    relaying = Relaying(ScriptedUpstream())
    await relaying.open()
    before = _seen_by_the_collector()
    for _ in range(500):
        await relaying.open()
    assert _seen_by_the_collector() - before == Counter({"Session": 500})
    assert len(relaying.sessions.opened()) == 501


def _seen_by_the_collector() -> Counter[str]:
    """The objects of the adapter's own classes."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith("adapter."))
