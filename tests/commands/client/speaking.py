"""An MCP server of the era with sessions, by script, and the commands that call it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.commands.running import mcp_adapter
from tests.edge.raw import Exchange, RawUpstream, event

Json = dict[str, Any]
Call = Callable[[Exchange, "Speaking"], Awaitable[None]]

PAINT: Json = {
    "name": "paint",
    "description": "Paints a picture.\nOf anything.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "The motif"},
            "size": {"type": "integer"},
            "tags": {"type": "array"},
        },
        "required": ["what"],
    },
}


class Speaking(RawUpstream):
    """Lists ``tools`` and gives calls to ``call``. ``said`` has what the client answers to its questions, by id."""

    def __init__(self, call: Call, *tools: Json) -> None:
        super().__init__(self._respond)
        self.call, self.tools = call, tools or (PAINT,)
        self.said: dict[int, asyncio.Future[Json]] = {}

    @property
    def arguments(self) -> list[Json]:
        """Those of all calls, in their order."""
        params: list[Any] = [each.message["params"] for each in self.calls("tools/call")]
        return [each.get("arguments") for each in params]

    async def ask(self, exchange: Exchange, number: int, **params: Any) -> Json:
        """Ask in the stream of a call; the client's result."""
        self.said[number] = asyncio.get_running_loop().create_future()
        request = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}
        await exchange.chunk(event(orjson.dumps(request)))
        async with asyncio.timeout(60):
            return await self.said[number]

    async def _respond(self, exchange: Exchange) -> None:
        message = exchange.message
        method = message.get("method")
        if exchange.head.method == "GET":
            await exchange.answer(405, b"")
        elif "method" not in message:
            self.said[int(str(message["id"]))].set_result(dict(message["result"]))  # type: ignore[call-overload]
            await exchange.answer(202, b"")
        elif method == "tools/list":
            await exchange.json(reply(exchange, tools=self.tools))
        elif method == "tools/call":
            await self.call(exchange, self)
        else:
            error = {"code": -32601, "message": "Method not found"}
            await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error}))


def reply(exchange: Exchange, **result: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result})


def text(exchange: Exchange, words: str, **more: Any) -> bytes:
    """The result of a call with one text."""
    return reply(exchange, content=[{"type": "text", "text": words}], **more)


async def painted(exchange: Exchange, _: Speaking) -> None:
    await exchange.json(text(exchange, "a picture"))


@asynccontextmanager
async def speaking(call: Call = painted, *tools: Json) -> AsyncIterator[Speaking]:
    async with Speaking(call, *tools) as server:
        yield server


async def run(
    place: Path, *arguments: str, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command in ``place``, whose own data stays there."""
    variables = {"HOME": str(place), "XDG_DATA_HOME": "", **variables}
    return await asyncio.to_thread(mcp_adapter, place, *arguments, stdin=stdin, **variables)


def browser(place: Path, code: str) -> str:
    """The value of ``BROWSER`` for a browser that runs ``code`` with the address in ``url``."""
    script = place / "browser.py"
    script.write_text(f"import sys\nurl = sys.argv[1]\n{code}")
    return f"{sys.executable} {script} %s"
