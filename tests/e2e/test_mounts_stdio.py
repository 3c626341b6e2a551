"""Many servers over stdio at one address: how many processes they take."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.members import PATIENCE, Listener, listener
from tests.e2e.processes import Adapter

pytestmark = pytest.mark.e2e

SERVERS = 50
CLIENTS = 10

SMALL = """
import json, os, sys, time
place, name = sys.argv[1:]
open(os.path.join(place, f"{name}-{os.getpid()}"), "w").close()
time.sleep(3)
for message in map(json.loads, sys.stdin):
    if not {"id", "method"} <= message.keys(): continue
    results = {
        "initialize": {"protocolVersion": message.get("params", {}).get("protocolVersion"),
                       "capabilities": {"tools": {}}, "serverInfo": {"name": name, "version": "1"}},
        "tools/list": {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": f"{name} {os.getpid()}"}]},
        "ping": {},
    }
    found = results.get(message["method"])
    answer = {"result": found} if found is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
"""A server of few bytes, slow enough to be asked before it is known, which leaves a file for each process that was ever
started.
"""


class Folder:
    """The adapter in front of so many small servers, and the files that their processes leave."""

    def __init__(self, place: Path, count: int) -> None:
        self.started = place / "started"
        self.started.mkdir()
        names = [f"s{number}" for number in range(count)]
        self.tools = [f"{name}_run" for name in names]
        program = {
            "transport": "stdio",
            "command": sys.executable,
            "args": ["-S", "-c", SMALL, str(self.started)],
        }
        servers = [{"id": each, "upstream": {**program, "args": [*program["args"], each]}} for each in names]
        mount = {"id": "all", "servers": ["*"], "list_timeout_seconds": PATIENCE}
        settings = {"storage": {"root": str(place / "data")}, "servers": servers, "mounts": [mount]}
        self.front = Adapter(place, settings)

    @property
    def processes(self) -> Counter[str]:
        """The processes of each server that were ever started."""
        return Counter(each.name.rpartition("-")[0] for each in self.started.iterdir())


@asynccontextmanager
async def crowd(url: str, mode: str) -> AsyncIterator[list[Listener]]:
    """Clients that listen."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(listener(url, mode)) for _ in range(CLIENTS)]


@pytest.mark.parametrize(("mode", "servers"), [("legacy", SERVERS), ("2026-07-28", 10)])
async def test_clients_that_only_list_start_one_process_of_each_server(
    tmp_path: Path, mode: str, servers: int
) -> None:
    """Ten clients of many servers, pings, lists and streams: what the adapter asks for itself shares one process."""
    folder = Folder(tmp_path, servers)
    async with folder.front as front, asyncio.timeout(4 * PATIENCE):
        async with crowd(f"{front.base}/mcp/all", mode) as clients:
            for _ in range(2):
                for client in clients:
                    assert await client.listed() == (folder.tools, [])
        assert set(folder.processes.values()) == {1}, folder.processes


async def test_a_program_that_has_ended_is_missing_at_once(tmp_path: Path) -> None:
    """Where it cannot be started again; nobody waits for a ping, nor until the list is half a minute old."""
    folder = Folder(tmp_path, 1)
    async with folder.front as front, listener(f"{front.base}/mcp/all", "legacy") as client:
        assert await client.listed() == (folder.tools, [])
        (started,) = folder.started.iterdir()
        shutil.rmtree(folder.started)
        os.kill(int(started.name.rpartition("-")[2]), signal.SIGKILL)
        # Sooner than the next ping.
        async with asyncio.timeout(9):
            while (await client.listed())[1] != ["s0"]:
                await asyncio.sleep(0.05)
