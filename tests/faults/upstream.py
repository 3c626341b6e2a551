"""``python -m tests.faults.upstream PORT JOURNAL``: an upstream that records each execution before it answers.

It prints its URL. The journal has a line for each execution, ``TOKEN UPSTREAM-SESSION``; a line that was written stays
there when the process is killed. Tools:

* ``count`` answers the token, after ``pause`` seconds. ``stream`` does so by an event stream with progress.
* ``digest`` reads the file at ``path``: ``TOKEN SHA256 SIZE``. ``write`` writes a drawing to ``filename``.
* ``change`` changes the definitions of all tools, for everybody, until the process ends.

``GET /census`` answers the number of sessions that are open: ``{"sessions": 3}``.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import secrets
import sys
from pathlib import Path
from typing import Any

import orjson

from tests.edge.raw import Exchange, RawUpstream, event, initialize_result

PROGRESS = 4
"""Events of a stream before its result."""

TOOLS = ("count", "stream", "digest", "write", "change")


def drawing(seed: int, size: int) -> bytes:
    """The content that ``write`` writes."""
    return random.Random(seed).randbytes(size)


CHANGES = 8
"""Definitions of the tools: as many as one run meets again and again, so that what is kept of them is bounded."""


class CountingServer:
    """The tools, and how often their definitions have changed."""

    def __init__(self, journal: Path) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._changes = 0
        self.upstream = RawUpstream(self._script, opening=self._open)

    async def _open(self, exchange: Exchange) -> None:
        # Unlike a number, a random name is not given again after a restart.
        name = secrets.token_hex(16)
        self.upstream.sessions.add(name)
        await exchange.json(initialize_result(exchange.message["id"]), f"Mcp-Session-Id: {name}")

    async def _script(self, exchange: Exchange) -> None:
        message: dict[str, Any] = exchange.message
        session = exchange.head.get("mcp-session-id") or ""
        self.upstream.seen.clear()
        match message.get("method"):
            case _ if exchange.head.first.startswith("GET /census"):
                await exchange.json(orjson.dumps({"sessions": len(self.upstream.sessions)}))
            case "tools/list":
                await self._result(exchange, {"tools": self._tools()})
            case "tools/call":
                await self._call(exchange, message["params"], session)
            case None if exchange.head.method == "GET":
                await exchange.answer(405, b"")
            case _:
                await exchange.json(
                    b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}'
                    % orjson.dumps(message.get("id"))
                )

    def _tools(self) -> list[dict[str, object]]:
        text = f"The tool of change {self._changes}."
        return [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name in TOOLS]

    async def _call(self, exchange: Exchange, params: dict[str, Any], session: str) -> None:
        name, given = params["name"], params.get("arguments", {})
        token = str(given.get("token", ""))
        os.write(self._journal, f"{token} {session}\n".encode())
        await asyncio.sleep(float(given.get("pause", 0)))
        match name:
            case "stream":
                await self._stream(exchange, token)
                return
            case "digest":
                content = Path(given["path"]).read_bytes()
                text = f"{token} {hashlib.sha256(content).hexdigest()} {len(content)}"
            case "write":
                Path(given["filename"]).write_bytes(drawing(given["seed"], given["bytes"]))
                text = f"{token} written"
            case "change":
                self._changes = (self._changes + 1) % CHANGES
                text = token
            case _:
                text = token
        await self._result(exchange, {"content": [{"type": "text", "text": text}]})

    async def _stream(self, exchange: Exchange, token: str) -> None:
        await exchange.begin_stream()
        for number in range(PROGRESS):
            told = {"progressToken": token, "progress": number, "total": PROGRESS}
            await exchange.chunk(event(_message(method="notifications/progress", params=told)))
            await asyncio.sleep(0.005)
        result = {"content": [{"type": "text", "text": token}]}
        await exchange.chunk(event(_message(id=exchange.message["id"], result=result)))
        await exchange.end_stream()

    async def _result(self, exchange: Exchange, result: object) -> None:
        await exchange.json(_message(id=exchange.message["id"], result=result))


def _message(**members: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", **members})


async def main(port: int, journal: Path) -> None:
    """Serve until the process is ended."""
    server = CountingServer(journal)
    server.upstream.port = port
    await server.upstream.start()
    print(server.upstream.url, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
