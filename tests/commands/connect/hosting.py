"""A host at one end of a relay, without pipes: what it says, and what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from adapter.commands.connect.files import LocalUploads, ResultFolder
from adapter.commands.connect.folders import Folders
from adapter.commands.connect.relay import StdioRelay
from adapter.upstream.http import HttpUpstream
from adapter.upstream.remote import RemoteServer

Json = dict[str, Any]

PATIENCE = 30.0

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "host", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Host:
    """``lines`` has what the relay wrote and nobody has read, ``told`` what it said to people."""

    def __init__(self, url: str, patience: float, folders: Folders | None, save_to: Path | None) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.told: list[str] = []
        server = RemoteServer(HttpUpstream(url), url, [("X-Team", "a")], None, self.told.append, patience)
        uploads = None if folders is None else LocalUploads(url, folders)
        results = None if save_to is None else ResultFolder(url, save_to)
        self.relay = StdioRelay(server, self.lines.put, self.told.append, uploads, results)
        self.server = server

    async def say(self, message: Json | bytes) -> None:
        await self.relay.take(message if isinstance(message, bytes) else orjson.dumps(message))

    async def line(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.lines.get()

    async def hear(self) -> Json:
        message: Json = orjson.loads(await self.line())
        return message

    async def ask(self, number: object, method: str, **params: Any) -> Json:
        await self.say(request(number, method, **params))
        return await self.hear()

    async def initialize(self) -> None:
        """Open a session as hosts of the legacy era do."""
        answer = await self.ask(
            0,
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "h", "version": "1"},
        )
        assert answer["result"]["protocolVersion"] == "2025-11-25", answer
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})


def request(number: object, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def result(number: object, **members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "result": members})


@asynccontextmanager
async def host_of(
    url: str, patience: float = PATIENCE, folders: Folders | None = None, save_to: Path | None = None
) -> AsyncIterator[Host]:
    host = Host(url, patience, folders, save_to)
    try:
        yield host
    finally:
        await host.relay.end()
        await host.server.close()
