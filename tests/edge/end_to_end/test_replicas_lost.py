"""Replicas that fall silent, and those that were only slow: their sessions live in one place at any time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adapter.relay.replicas.registry import TABLE
from tests.edge.raw import error_of, read_chunk
from tests.edge.replicating import PATIENCE, call, tool, two_replicas


async def test_what_waits_for_a_silent_replica_ends(tmp_path: Path) -> None:
    """It took the call and froze: when it counts as gone the call gets an error under its id, and streams end."""
    async with (
        two_replicas(tmp_path) as (found, a, b, first),
        b.client(first.session) as second,
        b.client(first.session) as listener,
    ):
        await listener.send("GET")
        await listener.head()
        await second.send("POST", tool("sleep", 7, seconds=600))
        await a.exchanges(2)
        await found.memory.rows.delete(TABLE, "a")
        await b.registry.look()
        async with asyncio.timeout(PATIENCE):
            head = await second.head()
            error = error_of(await second.reader.readexactly(int(head["content-length"])))
            assert (head.status, error["id"], error["code"]) == (200, 7, -32011)
            while await read_chunk(listener.reader):
                pass


async def test_a_replica_that_was_only_slow_lets_go_of_its_sessions(tmp_path: Path) -> None:
    """Others took it for gone and opened its session anew: its own child ends, and it serves through theirs."""
    async with two_replicas(tmp_path) as (found, a, b, first):
        before = (await call(first, "who"))["result"]["pid"]
        await found.memory.rows.delete(TABLE, "a")
        await b.registry.look()
        async with b.client(first.session) as second:
            after = (await call(second, "who"))["result"]["pid"]
            assert after != before
        await a.registry.renew()
        await a.without_processes()
        assert (await call(first, "who"))["result"]["pid"] == after
        assert b.processes == 1
