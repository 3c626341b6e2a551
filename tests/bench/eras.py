"""A call between eras of MCP beside one that is piped, both ways.

``python -m tests.bench.eras`` is an upstream of the modern era; it prints its port.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import uvloop

from tests.bench.fronts import Running, adapter, upstream_running
from tests.bench.load import Answer, Client
from tests.bench.process import cpu_seconds, tree
from tests.bench.run import Run, progress
from tests.bench.scenarios import SETTLE
from tests.bench.upstream import UpstreamConnection, json_answer, response, serve

PART = "eras"
CALLS, WARM = 2000, 20
VERSION = "2026-07-28"

PIPED, BRIDGED = "piped", "bridged"
LEGACY = "call of a legacy client, CPU µs"
MODERN = "call of a modern client, CPU µs"

_META = {
    f"io.modelcontextprotocol/{name}": value
    for name, value in {
        "protocolVersion": VERSION,
        "clientInfo": {"name": "bench", "version": "1"},
        "clientCapabilities": {},
    }.items()
}


class ModernClient(Client):
    """One without a session."""

    def _head(self, method: str) -> bytes:
        mirrors = f"\r\nMCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: echo"
        return super()._head(method) + mirrors.encode()

    async def initialize(self) -> None:
        """Do nothing: there is nothing to open."""

    async def call(self, tool: str = "echo", **arguments: int | str) -> Answer:
        """See Client. The tool can be ``echo`` only."""
        self._id += 1
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self._id, **_META}}
        message = {"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params}
        return self.checked(tool, await self._post(orjson.dumps(message)))


class ModernConnection(UpstreamConnection):
    """The bench's upstream, of the modern era only."""

    def _answer(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if message.get("method") == "server/discover":
            found = {"resultType": "complete", "supportedVersions": [VERSION], "capabilities": {"tools": {}}}
            self._write(json_answer(number, orjson.dumps(found)))
        elif message.get("method") == "initialize":
            error = {"code": -32022, "message": "Unsupported protocol version"}
            body = orjson.dumps({"jsonrpc": "2.0", "id": number, "error": error})
            self._write(response("400 Bad Request", body, "Content-Type: application/json"))
        else:
            super()._answer(message)

    def _call(self, request_id: object, params: dict[str, Any]) -> None:
        text = orjson.dumps(params["arguments"]).decode()
        found = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        self._write(json_answer(request_id, orjson.dumps(found)))


async def measure_eras(run: Run) -> None:
    """Measure both clients at both servers, in turns."""
    async with (
        upstream_running(run.room(PART), "tests.bench.eras") as modern,
        adapter(run.upstream, run.room(PART, "legacy")) as at_legacy,
        adapter(modern, run.room(PART, "modern")) as at_modern,
    ):
        for number in range(1, run.extent.rounds + 1):
            progress(f"round {number} of {run.extent.rounds}: calls between eras")
            for measured, name, kind, front in (
                (LEGACY, PIPED, Client, at_legacy),
                (LEGACY, BRIDGED, Client, at_modern),
                (MODERN, PIPED, ModernClient, at_modern),
                (MODERN, BRIDGED, ModernClient, at_legacy),
            ):
                run.results.figures.add(PART, measured, name, await _cost(kind, front, run.extent.part))


async def _cost(kind: type[Client], front: Running, part: float) -> float:
    """µs of CPU for a call, one after another in one session."""
    assert front.pid is not None
    client, pids = await kind.connect(front.address), tree(front.pid)
    try:
        await client.initialize()
        for _ in range(WARM):
            await client.call("echo", a=1, b=2)
        before, count = cpu_seconds(pids), max(1, int(CALLS * part))
        for _ in range(count):
            await client.call("echo", a=1, b=2)
        await asyncio.sleep(SETTLE)
        return (cpu_seconds(pids) - before) * 1e6 / count
    finally:
        client.close()


if __name__ == "__main__":
    uvloop.run(serve(ModernConnection))
