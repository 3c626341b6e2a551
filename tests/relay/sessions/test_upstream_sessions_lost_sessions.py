"""Upstream sessions whose rows the store has lost: closed by whoever still knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog import get_logger

from adapter.errors import SessionUnknown, StoreUnavailable
from adapter.relay.sessions.session_map import TABLE
from adapter.relay.sessions.upstream_sessions import LostSessions
from adapter.state.fallback import FallbackStore
from adapter.state.port import STORE_ONLY
from adapter.state.sqlite import MemoryStore
from tests.relay.replicating import RESULT, Replica, Replicas
from tests.relay.sharing import LiveUpstream, client, sharing
from tests.state.shared import SharedMemory
from tests.waiting import until


def lost_sessions(replica: Replica, *others: Callable[[], Awaitable[None]]) -> LostSessions:
    return LostSessions(replica.sessions, others, replica.background)


def lose(replicas: Replicas) -> None:
    """The store forgets everything, and whoever used it learns that rows may be others."""
    replicas.memory.rows = MemoryStore()
    for view in replicas.memory.replicas:
        view.unsure()


async def searched(*all_lost: LostSessions) -> None:
    await until(
        lambda: all(repr(each) == "<LostSessions: done, <RowLooks: done, 0 waiting>>" for each in all_lost)
    )


async def test_what_stood_behind_lost_sessions_is_closed() -> None:
    """By one cleanup, each once although two replicas knew of it; a session that began after the loss goes on."""
    replicas = Replicas()
    one, two, _ = replicas.three()
    sessions = [await one.initialize() for _ in range(40)]
    for session in sessions[:20]:
        await two.call(session)
    lose(replicas)
    new = await two.initialize()
    lost = [lost_sessions(each) for each in (one, two)]
    for each in lost:
        each.store_lost()
    await searched(*lost)
    assert await replicas.memory.rows.count(TABLE) == 41
    await two.cleanup.run_once()
    assert replicas.upstream.alive == {"real-41"}
    assert await replicas.memory.rows.count(TABLE) == 1
    assert await one.call(new) == RESULT


async def test_a_client_that_was_quicker_changes_nothing() -> None:
    """Its session was found gone before the loss was noticed, and is closed all the same."""
    replicas = Replicas()
    one, two, _ = replicas.three()
    session = await one.initialize()
    lose(replicas)
    for replica in (one, two):
        with pytest.raises(SessionUnknown):
            await replica.call(session)
    lost = lost_sessions(one)
    lost.store_lost()
    await searched(lost)
    await one.cleanup.run_once()
    assert replicas.upstream.alive == set()


async def test_sessions_that_are_there_stay() -> None:
    """A loss that took other rows is no reason to end them."""
    replicas = Replicas()
    one, _, _ = replicas.three()
    session = await one.initialize()
    lost = lost_sessions(one)
    lost.store_lost()
    await searched(lost)
    await one.cleanup.run_once()
    assert await one.call(session) == RESULT
    assert await replicas.memory.rows.count(TABLE) == 1


async def test_a_store_that_fails_is_asked_again() -> None:
    """Nothing is forgotten meanwhile."""
    replicas = Replicas()
    one, _, _ = replicas.three()
    await one.initialize()
    lose(replicas)
    lost = lost_sessions(one)
    one.view.down = True
    lost.store_lost()
    before = one.view.calls["get"]
    await until(lambda: one.view.calls["get"] > before)
    one.view.down = False
    await searched(lost)
    await one.cleanup.run_once()
    assert replicas.upstream.alive == set()


async def test_others_come_one_after_another_when_all_rows_are_settled() -> None:
    """Each asks the store itself, and again while that fails."""
    replicas = Replicas()
    one, _, _ = replicas.three()
    await one.initialize()
    lose(replicas)
    steps: list[str] = []

    async def first() -> None:
        steps.append(f"first at {await replicas.memory.rows.count(TABLE)}, {STORE_ONLY.get()}")
        if len(steps) == 1:
            raise StoreUnavailable
        await asyncio.sleep(0.01)
        steps.append("first is done")

    async def second() -> None:
        steps.append(f"second, {STORE_ONLY.get()}")

    lost = lost_sessions(one, first, second)
    one.view.down = True
    before = one.view.calls["get"]
    lost.store_lost()
    await until(lambda: one.view.calls["get"] > before)
    one.view.down = False
    await searched(lost)
    assert steps == ["first at 1, True", "first at 1, True", "first is done", "second, True"]
    assert not STORE_ONLY.get()


async def test_others_come_again_at_once_for_each_loss() -> None:
    """Also for one that was noticed while they ran; however long they took, there is no rest behind them."""
    replicas = Replicas()
    one, _, _ = replicas.three()
    began: list[float] = []

    async def slow() -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.6 if len(began) == 1 else 0)

    lost = lost_sessions(one, slow)
    lost.store_lost()
    await until(lambda: len(began) == 1)
    lost.store_lost()
    await searched(lost)
    assert len(began) == 2 and began[1] - began[0] < 2.4
    lost.store_lost()
    await searched(lost)
    assert len(began) == 3


async def test_nothing_is_lost_for_a_replica_that_goes_on_in_memory() -> None:
    """There rows are absent that it has not used of late, and their sessions must go on."""
    replicas = Replicas()
    view = replicas.memory.replica()
    store = FallbackStore(view, get_logger(), retry=0.01)
    await store.open()
    one = replicas.start(store=store)
    session = await one.initialize()
    store.store_lost()
    view.down = True
    assert await store.get("any", "row") is None
    lost = lost_sessions(one)
    lost.store_lost()
    for _ in range(50):
        await asyncio.sleep(0)
    view.down = False
    await until(lambda: store.outage is None)
    await one.background.close()
    await one.cleanup.run_once()
    assert len(replicas.upstream.alive) == 1
    assert await one.call(session) == RESULT
    await store.close()


async def test_shared_sessions_are_closed_though_a_cleanup_comes_between() -> None:
    """It forgets those whose rows were found gone, but not while they are being closed."""
    upstream, memory = LiveUpstream(), SharedMemory()
    one = sharing(upstream, view := memory.replica())
    for name in ("ann", "ben", "cid"):
        await client(one, name)
    memory.rows = MemoryStore()
    view.unsure()
    assert len(upstream.alive) == 3

    reads = view.calls["get"]

    async def tidy(table: str, key: str) -> None:
        if view.calls["get"] == reads + 3:
            view.before = None
            await one.shared.write_used()

    view.before = tidy
    await one.shared.end_lost()
    assert upstream.alive == set()


async def test_a_lost_session_that_many_share_is_closed() -> None:
    """By the one who knows it; the next client has a new one, and that goes on."""
    upstream, memory = LiveUpstream(), SharedMemory()
    one, two = (sharing(upstream, memory.replica()) for _ in range(2))
    await client(one)
    memory.rows = MemoryStore()
    for view in memory.replicas:
        view.unsure()
    ben = await client(two)
    assert upstream.alive == {"real-1", "real-2"}
    await asyncio.gather(one.shared.end_lost(), two.shared.end_lost())
    assert upstream.alive == {"real-2"}
    assert await ben.call(1, "b") == "b"
