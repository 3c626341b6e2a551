"""Many idle sessions in the store of an adapter that starts: what the start, its memory and a call cost beside none.

The rows are copies of one that an adapter wrote, with other keys, so that 100,000 of them are there within seconds.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapter.relay.sessions.session_map import TABLE
from adapter.settings.root import Settings
from adapter.state.sqlite import SqliteStore
from tests.bench.fronts import Running, adapter_settings, adapter_with, free_port
from tests.bench.load import Address, Client
from tests.bench.process import cpu_seconds, rss_bytes, tree
from tests.bench.run import Run, progress
from tests.bench.scenarios import Scenario, measure, one_call_at_a_time

PART = "sessions"
MIB = 1024 * 1024
AT_ONCE = 5000
"""Rows that are written in one transaction."""

NONE = "adapter, none stored"

FIRST_ANSWER = "until the first session is answered, ms"
START, MEMORY, CALL = "start, CPU ms", "RSS after the start, MiB", "call, CPU µs"

QUIET, QUIET_SHARE, MOST_WAITS = 0.2, 0.05, 50
"""A start is over when a process has used less than this share of so many seconds; waited for at most so often."""

_SEQ = Scenario("seq", "call", one_call_at_a_time, 2000)


def stored(count: int) -> str:
    """The name of the adapter with so many sessions, among the fronts."""
    return f"adapter, {count:,} stored"


async def measure_stored_sessions(run: Run) -> None:
    """Start two adapters in turns, one with no stored session and one with many."""
    count = run.extent.sizes.sessions
    bearer = secrets.token_hex(16)
    rooms = {NONE: run.room(PART, 0), stored(count): run.room(PART, count)}
    progress(f"{count:,} sessions are written")
    await _store_sessions(run, rooms[stored(count)], bearer, count)
    for number in range(1, run.extent.sizes.rounds + 1):
        for name, room in rooms.items():
            progress(f"round {number} of {run.extent.sizes.rounds}: {name}")
            with run.noting(PART, name):
                await _measure(run, name, room, bearer)


@asynccontextmanager
async def _adapter(run: Run, room: Path, bearer: str) -> AsyncIterator[tuple[Running, Path]]:
    """An adapter with its state in ``room``, and the file of the state."""
    address = Address(free_port(), "/mcp/bench", bearer)
    settings = adapter_settings(run.upstream, address.port, bearer, room)
    async with adapter_with(settings, address, room) as running:
        yield running, Settings.model_validate(settings).state_path


async def _store_sessions(run: Run, room: Path, bearer: str, count: int) -> None:
    async with _adapter(run, room, bearer) as (running, state):
        client = await Client.connect(running.address)
        await client.initialize()
        client.close()
    store = SqliteStore(state)
    await store.open()
    try:
        (row,) = await store.scan(TABLE)
        for start in range(1, count, AT_ONCE):
            some = range(start, min(count, start + AT_ONCE))
            await asyncio.gather(
                *(store.put(TABLE, secrets.token_hex(32), row.value, due=row.due) for _ in some)
            )
    finally:
        await store.close()


async def _measure(run: Run, name: str, room: Path, bearer: str) -> None:
    begun = time.perf_counter()
    async with _adapter(run, room, bearer) as (running, _):
        answered = time.perf_counter() - begun
        assert running.pid is not None
        pids = tree(running.pid)
        spent = await _quiet(pids)
        resident = rss_bytes(pids)
        sample = await measure(_SEQ, running, int(_SEQ.count * run.extent.part))
    assert sample.cpu is not None
    figures = run.results.figures
    figures.add(PART, FIRST_ANSWER, name, answered * 1e3)
    figures.add(PART, START, name, spent * 1e3)
    figures.add(PART, MEMORY, name, resident / MIB)
    figures.add(PART, CALL, name, sample.cpu)


async def _quiet(pids: list[int]) -> float:
    """Wait until the processes have nothing more to do; the CPU seconds that they have used since they began."""
    spent = cpu_seconds(pids)
    for _ in range(MOST_WAITS):
        await asyncio.sleep(QUIET)
        before, spent = spent, cpu_seconds(pids)
        if spent - before < QUIET * QUIET_SHARE:
            break
    return spent
