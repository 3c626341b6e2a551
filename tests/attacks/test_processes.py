"""Servers over stdio that flood the adapter or do not read it: only their own session suffers, in bounded memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import Arena, attacked
from tests.edge.raw import RawClient, read_head

pytestmark = pytest.mark.e2e

MIB = 1 << 20
MOST = 96 * MIB
"""Bytes that the adapter may grow by: a line of 64 MiB may be an answer, so as much is held."""

MOST_LOG = 32 << 10
"""Bytes of the log after some seconds of a flood."""

NOTES = 400_000

FLOODING = """
import json, sys, time
out = sys.stdout
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if number is None: continue
    result = {}
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {},
                  "serverInfo": {"name": "f", "version": "1"}}
    if method == "tools/call":
        name, count = message["params"]["name"], message["params"]["arguments"].get("count", 0)
        if name == "notes":
            note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 50}})
            for _ in range(count // 1000): out.write((note + "\\n") * 1000)
        if name == "blob":
            for _ in range(count): out.write("x" * (1 << 20))
            out.write("\\n")
        if name == "batches":
            for _ in range(count): out.write("[" + ",".join(['{"method":"a"}'] * 500_000) + "]\\n")
        if name == "chatter":
            for _ in range(count // 1000): out.write("x\\n\\n" * 1000)
        if name == "blanks":
            for _ in range(count): out.write(" " * (40 << 20) + "\\n")
        if name == "words":
            for _ in range(count // 1000): sys.stderr.write(("x" * 50 + "\\n") * 1000)
        if name == "deaf":
            time.sleep(600)
    out.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}) + "\\n")
    out.flush()
"""


def flooding(**more: Any) -> dict[str, Any]:
    """The attacked server's entry."""
    upstream = {"transport": "stdio", "command": sys.executable, "args": ["-S", "-c", FLOODING], **more}
    return {"upstream": upstream}


def call(tool: str, number: int = 1, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


async def answered(client: RawClient, body: bytes) -> dict[str, Any]:
    """The response to a call that asks for no stream."""
    head, content = await client.request("POST", body=body, accept="application/json")
    assert head.status == 200, content
    return dict(orjson.loads(content))


async def grown(arena: Arena, work: Any) -> int:
    """The most bytes that the adapter had more than before while ``work`` was done."""
    before, most = arena.resident_bytes(), 0
    task = asyncio.ensure_future(work)
    while not task.done():
        most = max(most, arena.resident_bytes() - before)
        await asyncio.wait((task,), timeout=0.05)
    await task
    return most


async def test_a_flood_of_notifications(tmp_path: Path) -> None:
    """Hundreds of thousands, for a client that listens nowhere and one whose stream nobody reads."""
    async with (
        attacked(tmp_path, "", server=flooding()) as arena,
        arena.client() as silent,
        arena.client() as deaf,
        arena.client() as stream,
    ):
        await silent.initialize()
        await deaf.initialize()
        stream.session = deaf.session
        await stream.send("GET", accept="text/event-stream")
        assert (await read_head(stream.reader)).status == 200
        work = asyncio.gather(
            answered(silent, call("notes", count=NOTES)), answered(deaf, call("notes", count=NOTES))
        )
        assert await grown(arena, work) < MOST


UNREAD = {"batches": 10, "words": NOTES, "chatter": NOTES, "blanks": 3, "blob": 100}


async def test_a_flood_that_is_not_read(tmp_path: Path) -> None:
    """Batches of half a million messages, long lines of nothing, hundreds of thousands of lines that are none, and a
    hundred mebibytes without an end of a line: the call after each is answered.

    The log has some of their number, and grows by little.
    """
    async with attacked(tmp_path, "", server=flooding()) as arena, arena.client() as client:
        await client.initialize()
        for kind, count in UNREAD.items():
            assert await grown(arena, answered(client, call(kind, count=count))) < MOST, kind
            assert (await answered(client, call("nothing")))["result"] == {}, kind
            assert len(arena.log) < MOST_LOG, kind


async def test_a_process_that_does_not_read(tmp_path: Path) -> None:
    """Calls with large arguments wait within a limit, and are refused above it."""
    async with attacked(tmp_path, "", server=flooding()) as arena, arena.client() as first:
        await first.initialize()
        await first.send("POST", body=call("deaf"))
        refused = 0
        for number in range(2, 12):
            async with arena.client() as client:
                client.session = first.session
                await client.send("POST", body=call("x", number, text="x" * (3 * MIB)))
                try:
                    async with asyncio.timeout(0.5):
                        head = await read_head(client.reader)
                    refused += head.status == 200
                except TimeoutError:
                    continue
        assert refused
        assert arena.resident_bytes() < 250 * MIB
