"""Replicas that fall silent, and those that were only slow: their sessions live in one place at any time."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

from adapter.relay.replicas.registry import TABLE
from adapter.rules.access.replicas import decode_replica, encode_replica
from tests.edge.raw import error_of, read_chunk
from tests.edge.replicating import PATIENCE, Replica, call, site, tool, two_replicas
from tests.waiting import until


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


async def test_a_replica_that_comes_back_under_its_id(tmp_path: Path) -> None:
    """Killed and started again: nobody waits until it counts as gone, and its sessions are opened anew."""
    async with site(tmp_path) as found:
        a, b = await found.start("a"), await found.start("b")
        async with a.client() as first:
            await first.initialize()
            session = first.session
            before = (await call(first, "who"))["result"]["pid"]
        await found.kill("a", a)
        a = await found.start("a")
        async with b.client(session) as second, a.client(session) as third:
            after = (await call(second, "who"))["result"]["pid"]
            assert after != before
            assert (await call(third, "who"))["result"]["pid"] == after
            assert (a.processes, b.processes) == (0, 1)


async def test_an_address_that_is_none_is_one_that_cannot_be_reached(tmp_path: Path) -> None:
    """Its replica may be of another version; its sessions are opened anew."""
    async with two_replicas(tmp_path) as (found, _, b, first):
        before = (await call(first, "who"))["result"]["pid"]
        row = await found.memory.rows.get(TABLE, "a")
        assert row is not None
        record = replace(decode_replica(row.value), address="nonsense://[")
        await found.memory.rows.put(TABLE, "a", encode_replica(record))
        await b.registry.look()
        async with b.client(first.session) as second:
            assert (await call(second, "who"))["result"]["pid"] != before


COUNTING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {}}
    elif method == "tools/call":
        with open(sys.argv[1], "a") as ran: ran.write(f"{number}\\n")
        result = {"content": []}
    if number is not None: print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""
"""Writes down each call that it runs."""


async def test_no_call_runs_twice_whatever_happens_to_its_owner(tmp_path: Path) -> None:
    """The owner is killed while calls come through another: each that has a result ran once, none ran twice, and the
    session goes on."""
    program, ran = tmp_path / "server.py", tmp_path / "ran"
    program.write_text(COUNTING)
    arguments = ["-S", str(program), str(ran)]
    server = {"upstream": {"transport": "stdio", "command": sys.executable, "args": arguments}}
    async with site(tmp_path, server) as found:
        a, b = await found.start("a"), await found.start("b")
        async with a.client() as first:
            await first.initialize()
            over = asyncio.Event()
            callers = [asyncio.ensure_future(_calls(b, first.session, 10_000 * n, over)) for n in range(8)]
            await until(lambda: not (not ran.exists() or ran.read_text().count("\n") < 200), PATIENCE)
            await found.kill("a", a)
            before = ran.read_text().count("\n")
            await until(lambda: ran.read_text().count("\n") >= before + 100, PATIENCE)
            over.set()
            answered = [number for caller in callers for number in await caller]
        times = Counter(map(int, ran.read_text().split()))
        assert max(times.values()) == 1
        assert set(answered) <= set(times)
        assert len(answered) >= 250


async def _calls(replica: Replica, session: str | None, start: int, over: asyncio.Event) -> list[int]:
    """Call one tool over and over under new ids; the ids of calls that have a result."""
    answered: list[int] = []
    async with replica.client(session) as client:
        for number in count(start):
            if over.is_set():
                return answered
            response = await call(client, "tool", number)
            assert response["id"] == number
            if "result" in response:
                answered.append(number)
    return answered
