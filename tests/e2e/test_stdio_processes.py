"""Servers that are processes: what an adapter before them keeps, tells and hands over."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.filing import ADAPTERS, artifact, content_of, python_host, said, texts, uploaded
from tests.e2e.json_session import JsonSession
from tests.e2e.over_stdio import PATIENCE, Command, serving, settings
from tests.e2e.processes import Adapter

pytestmark = pytest.mark.e2e

STAMPING = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    if message["method"] == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "stamping", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "stamp", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        text = f"{os.getpid()} {message['params']['arguments']['text']}"
        result = {"content": [{"type": "text", "text": text}]}
    else: result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
"""A server whose answers begin with its process id."""


@pytest.fixture
def stamping() -> Command:
    """The stamping server."""
    return sys.executable, ["-S", "-c", STAMPING]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=PATIENCE)
    ) as session:
        yield session


async def stamp(session: JsonSession, text: str) -> str:
    """Call the tool; the process id and the text."""
    return said(await session.call("stamp", text=text))


async def test_health_tells_operators_how_many_processes_run(
    stamping: Command, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Callers with credentials read the number and the limit, others neither."""
    token, given = "a-token-of-sixteen-letters", settings(tmp_path, stamping, max_processes=7)
    async with Adapter(tmp_path, given | {"core": {"auth": {"enabled": True, "token": token}}}) as front:
        operator = {"Authorization": f"Bearer {token}"}
        session = JsonSession(http, front.url, fields=operator)
        await session.open()
        assert await stamp(session, "hello")
        address = front.url.replace("/mcp", "/healthz")
        async with http.get(address, headers=operator) as told, http.get(address) as public:
            known, shown = (await told.json())["servers"][0], (await public.json())["servers"][0]
        assert known["processes"]["limit"] == 7 and 1 <= known["processes"]["running"] <= 2
        assert "processes" not in shown


@pytest.fixture
def files() -> Command:
    """The server of the file tests, on the SDK 2.x, which speaks both eras."""
    return sys.executable, ["-c", "from tests.e2e.files_server import server; server.run('stdio')"]


@pytest.mark.parametrize("process", ["per_session", "shared"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_files_go_into_a_process_and_out_of_it(
    files: Command, mode: str, process: str, tmp_path: Path
) -> None:
    """It sees the paths below storage.root, and what it writes there is the client's artifact."""
    sent = tmp_path / "sent.bin"
    sent.write_bytes(b"\0sent" * 999)
    more = {"adapters": list(ADAPTERS)}
    async with (
        serving(tmp_path, files, entry=more, process=process) as front,
        asyncio.timeout(PATIENCE),
        python_host(front.url, mode) as host,
    ):
        (upload,) = await uploaded(host, sent)
        turned = await host.call("turn_round", path=upload["upload_handle"], filename="turned.bin")
        assert content_of(await host.read(artifact(turned)["artifact_uri"])) == sent.read_bytes()[::-1]
        assert str(tmp_path) not in texts(turned)
