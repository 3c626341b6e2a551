"""Work that nobody waits for any more ends where it is done: on the database's server, in a process, in a thread.

Whether it has is asked of whoever does the work.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.hosted.lasting import (
    FAMILY,
    TELLING,
    Lasting,
    in_mariadb,
    in_mongodb,
    in_postgres,
    in_processes,
    in_redis,
    in_sqlite,
)
from tests.hosted.serving import ERAS, Front
from tests.plans import plans_of
from tests.ports import free_port
from tests.waiting import until

LONG = 60.0
"""Seconds that no test waits."""


@pytest.fixture(
    params=["sqlite", "postgres", "mariadb", "redis", "mongodb", "program", "function with progress"]
)
async def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lasting]:
    """Work of each kind."""
    match request.param:
        case "sqlite":
            made = in_sqlite(tmp_path / "app.db")
        case "postgres":
            made = in_postgres(request.getfixturevalue("postgres"))
        case "mariadb":
            made = in_mariadb(request.getfixturevalue("mariadb"))
        case "redis":
            made = in_redis(request.getfixturevalue("redis"))
        case "mongodb":
            made = in_mongodb()
        case "program":
            made = in_processes(tmp_path, FAMILY, "script.sh")
        case _:
            made = in_processes(tmp_path, TELLING, "script.py#run")
    async with made as lasts:
        yield lasts


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_gives_up_ends_the_work(lasting: Lasting, tmp_path: Path, era: str) -> None:
    """By notifications/cancelled in one era, by dropping the stream in the other; the connection serves the next
    call."""
    async with lasting.served(tmp_path, LONG) as front, front.client(era) as client:
        call = asyncio.create_task(client.call_tool("last", {}, progress_callback=_heard))
        await until(lasting.begun)
        call.cancel()
        await until(lasting.over)
        if lasting.quick is not None:
            assert not (await client.call_tool("quick", {})).is_error
        await until(lambda: _idle(front))


async def test_a_modern_client_that_vanishes_ends_the_work(lasting: Lasting, tmp_path: Path) -> None:
    """Its connection is gone and nothing else was said."""
    async with lasting.served(tmp_path, LONG) as front:
        async with httpx2.AsyncClient(timeout=LONG) as http:
            call = asyncio.create_task(_called(http, front))
            await until(lasting.begun)
            call.cancel()
            await asyncio.wait([call])
        await until(lasting.over)
        await until(lambda: _idle(front))


async def test_a_timeout_ends_the_work(lasting: Lasting, tmp_path: Path) -> None:
    """The call is answered in time and says why, and the work is over then."""
    async with lasting.served(tmp_path, lasting.patience) as front, front.client("legacy") as client:
        call = asyncio.create_task(client.call_tool("last", {}))
        await until(lasting.begun)
        result = await call
        assert result.is_error and result.meta is not None
        assert result.meta["adapter/error"]["reason"] == "timeout"
        await until(lasting.over)
        if lasting.quick is not None:
            assert not (await client.call_tool("quick", {})).is_error


async def test_an_adapter_that_stops_ends_the_work(lasting: Lasting, tmp_path: Path) -> None:
    """Nothing of it outlives the adapter."""
    async with httpx2.AsyncClient(timeout=LONG) as http:
        async with lasting.served(tmp_path, LONG) as front:
            call = asyncio.create_task(_called(http, front))
            await until(lasting.begun)
        await until(lasting.over, within=3)
        await asyncio.wait([call])
        call.exception()


# --- scripts in process ---------------------------------------------------------------------------------------

LOOPING = "def default(payload):\n  while True: pass\n"
QUICK = "def default(payload): return 'quick'\n"


def looping(place: Path) -> dict[str, Any]:
    """A configuration with a script that never ends, and one that does."""
    (place / "loop.py").write_text(LOOPING)
    (place / "quick.py").write_text(QUICK)
    tools = [
        {"name": "last", "handler": f"{place}/loop.py", "limits": {"timeout": 0.3}},
        {"name": "quick", "handler": f"{place}/quick.py"},
    ]
    return {
        "core": {"port": free_port(), "shutdown_grace_seconds": 0},
        "storage": {"root": str(place / "files")},
        "servers": [
            {
                "id": "hosted",
                "mount_path": "/mcp",
                "upstream": {"transport": "hosted"},
                "tools": {"define": tools},
            }
        ],
    }


async def test_w8_an_adapter_with_a_script_that_loops_can_be_stopped(tmp_path: Path) -> None:
    """The process ends when it is told to, whatever its threads do."""
    config = looping(tmp_path)
    (tmp_path / "adapter.yaml").write_text(json.dumps(config))  # JSON is YAML too
    argv = [sys.executable, "-m", "adapter", "serve", "--config", str(tmp_path / "adapter.yaml")]
    with (tmp_path / "output.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        async with httpx2.AsyncClient(timeout=LONG) as http:
            url = f"http://127.0.0.1:{config['core']['port']}/mcp"
            await until(lambda: _answers(http, url), within=30)
            late = await http.post(url, json=_message("last"), headers=_headers("last"))
            assert late.json()["result"]["_meta"]["adapter/error"]["reason"] == "timeout"
            quick = await http.post(url, json=_message("quick"), headers=_headers("quick"))
            assert quick.json()["result"]["content"][0]["text"] == '"quick"'
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


# --- as a modern client speaks --------------------------------------------------------------------------------


def _headers(tool: str) -> dict[str, str]:
    return {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }


def _message(tool: str) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    }
    params = {"name": tool, "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def _called(http: httpx2.AsyncClient, front: Front) -> httpx2.Response:
    return await http.post(front.url, json=_message("last"), headers=_headers("last"))


async def _answers(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        await http.get(url)
    except httpx2.TransportError:
        return False
    return True


async def _heard(progress: float, total: float | None, message: str | None) -> None:
    """Asks for progress, and so for a stream."""


def _idle(front: Front) -> bool:
    return plans_of(front.app).servers["hosted"].server.running == 0
