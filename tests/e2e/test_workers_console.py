"""Callers of the console and of the HTTP API before several processes: each request may meet another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.e2e.supervised import PATIENCE, Supervised, supervised
from tests.edge.raw import Exchange, result

pytestmark = pytest.mark.e2e

API = "/explorer/upstream/tools"
READS_FILES = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
ROUNDS = 8
"""Uploads and calls of one test, at least."""


async def reading(exchange: Exchange) -> None:
    """A server of the 2025 era whose tool reads a file."""
    message: dict[str, Any] = exchange.message
    if message["method"] == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        listed = {"tools": [{"name": "read", "inputSchema": schema}]}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": listed}))
        return
    text = Path(message["params"]["arguments"]["path"]).read_text()
    await exchange.json(result(message["id"], text))


class ApiCaller:
    """Somebody who uses a new connection for each request, so that any worker may take it."""

    def __init__(self, one: Supervised, http: aiohttp.ClientSession, fields: dict[str, str]) -> None:
        self._base = one.front.base
        self._http = http
        self._fields = fields

    async def call(self, tool: str, **arguments: Any) -> Any:
        url = f"{self._base}{API}/{tool}/call"
        async with self._http.post(url, json=arguments, headers=self._fields) as response:
            return await response.json()

    async def upload(self, text: str) -> str:
        """The handle of a file that the helper's URL took."""
        offer = (await self.call("upstream_get_upload_url"))["structuredContent"]
        form = aiohttp.FormData()
        form.add_field("file", text.encode(), filename="note.txt")
        async with self._http.post(offer["upload_url"], data=form) as response:
            return str((await response.json())["upload_handle"])

    async def read(self, handle: str) -> str:
        """The text that the tool finds in the file."""
        return str((await self.call("read", path=handle))["content"][0]["text"])

    async def files(self) -> list[str]:
        """The handles that a form of the console offers."""
        url = f"{self._base}/explorer/upstream/files"
        async with self._http.get(url, headers=self._fields) as response:
            return [each["uri"] for each in (await response.json())["files"]]


def sessions_of_calls(one: Supervised) -> set[str]:
    """The sessions at the server in which calls were made."""
    return {each.head["mcp-session-id"] for each in one.upstream.calls("tools/call")}


@asynccontextmanager
async def calling(place: Path, fields: dict[str, str]) -> AsyncIterator[tuple[Supervised, ApiCaller]]:
    """Two workers, and a caller of theirs."""
    entry = {"adapters": [READS_FILES]}
    console = {"enabled": True, "allow_execute": True}
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        supervised(place, server=entry, console=console, script=reading, access_log=True) as one,
        aiohttp.ClientSession(connector=connector) as http,
        asyncio.timeout(PATIENCE),
    ):
        yield one, ApiCaller(one, http, fields)


@pytest.mark.parametrize("fields", [{}, {"X-Adapter-Session": "tab"}], ids=["caller", "tab"])
async def test_a_file_is_its_caller_s_at_every_worker(tmp_path: Path, fields: dict[str, str]) -> None:
    """The URL, the upload, the offer and the call are taken by any of them, in one session at the server."""
    async with calling(tmp_path, fields) as (one, caller):
        number = 0
        # One worker may serve alone for a while, because the other has not begun.
        while number < ROUNDS or {line["worker"] for line in one.logged("exchange")} != {1, 2}:
            handle = await caller.upload(f"note {number}")
            assert await caller.read(handle) == f"note {number}"
            assert handle in await caller.files()
            number += 1
        assert len(sessions_of_calls(one)) == 1
