"""Servers over HTTP+SSE that flood the adapter: only their own session suffers, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.attacks.arena import attacked
from tests.attacks.test_processes import MOST, answered, call, grown

pytestmark = pytest.mark.e2e

NOTE = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%b"}}\n\n'
NOTES = NOTE % (b"x" * 50) * 1000
BATCH = b"event: message\ndata: [" + b",".join([b'{"method":"a"}'] * 500_000) + b"]\n\n"


class Flooding:
    """A server of the transport, with a stream for each GET, which does what calls tell it."""

    def __init__(self) -> None:
        self._streams: list[asyncio.StreamWriter] = []

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET"):
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                    )
                    writer.write(b"event: endpoint\ndata: /messages/%d\n\n" % len(self._streams))
                    self._streams.append(writer)
                    await reader.read()
                    return
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                message = orjson.loads(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                await self._answer(message, self._streams[int(head.split()[1].rpartition(b"/")[2])])
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, message: dict[str, Any], stream: asyncio.StreamWriter) -> None:
        if "id" not in message:
            return
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            result = {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "serverInfo": {"name": "f", "version": "1"},
            }
        if message["method"] == "tools/call":
            await self._flood(
                stream, message["params"]["name"], message["params"]["arguments"].get("count", 0)
            )
        answer = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        stream.write(b"event: message\ndata: " + answer + b"\n\n")
        await stream.drain()

    async def _flood(self, stream: asyncio.StreamWriter, kind: str, count: int) -> None:
        piece = {"notes": NOTES, "batches": BATCH}.get(kind, b"")
        for _ in range(count):
            stream.write(piece)
            await stream.drain()


@asynccontextmanager
async def flooding() -> AsyncIterator[dict[str, Any]]:
    """The attacked server's entry, while it serves."""
    server = await asyncio.start_server(Flooding().attend, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield {"upstream": {"transport": "sse", "url": f"http://127.0.0.1:{port}/sse"}}
    finally:
        server.close()


async def test_a_flood_of_messages(tmp_path: Path) -> None:
    """Hundreds of thousands of notifications for a client that listens nowhere, one by one and in batches."""
    async with flooding() as server, attacked(tmp_path, "", server=server) as arena, arena.client() as client:
        await client.initialize()
        for kind, count in (("notes", 200), ("batches", 10)):
            assert await grown(arena, answered(client, call(kind, count=count))) < MOST, kind
            assert (await answered(client, call("nothing", 2)))["result"] == {}, kind
