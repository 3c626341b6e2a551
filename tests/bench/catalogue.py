"""An upstream with as many tools as are asked for, the fronts before it, and how long others wait for its first list.

``python -m tests.bench.catalogue COUNT`` is that upstream; it prints its port.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import uvloop

from tests.bench.fronts import ROOT, Front, Running, adapter_settings, adapter_with, end, free_port
from tests.bench.load import Address, Client
from tests.bench.stalls import watched
from tests.bench.upstream import Sessions, UpstreamConnection, json_answer

GUARDED: dict[str, Any] = {
    "tool_definition_pinning": {"mode": "block"},
    "tool_metadata_sanitization": {"mode": "sanitize"},
    "tool_description_policy": {"mode": "truncate"},
    "disabled_tools": ["never_.*"],
}
OPEN: dict[str, Any] = {
    "tool_definition_pinning": {"mode": "off"},
    "tool_metadata_sanitization": {"mode": "off"},
}


def definitions(count: int) -> list[dict[str, Any]]:
    """``count`` tools as real servers have them: 600 bytes, some of them too long for the description policy."""
    properties = {
        f"argument_{number}": {"type": "string", "description": "What it is used for, in a sentence or two."}
        for number in range(4)
    }
    schema = {"type": "object", "properties": properties, "required": ["argument_0"]}
    return [
        {
            "name": "echo" if number == 0 else f"tool_{number}",
            "description": "Does something with what it is given. " * (2 if number % 10 else 12),
            "inputSchema": schema,
            "annotations": {"readOnlyHint": True},
        }
        for number in range(count)
    ]


class ListingConnection(UpstreamConnection):
    """The bench's upstream with a list of any length, made once."""

    result = b""

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("method") == "tools/list":
            self._write(json_answer(message["id"], self.result))
        else:
            super()._answer(message)


async def _serve(count: int) -> None:
    sessions = Sessions()
    ListingConnection.result = orjson.dumps({"tools": definitions(count)})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ListingConnection(sessions), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@asynccontextmanager
async def upstream_with(count: int) -> AsyncIterator[int]:
    """The bench's upstream with so many tools; yields its port."""
    argv = [sys.executable, "-m", "tests.bench.catalogue", str(count)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdout.close()
        end(process)


class Stage:
    """An upstream with so many tools, and the fronts before it."""

    def __init__(self, stack: AsyncExitStack, place: Path, upstream: int) -> None:
        self._stack = stack
        self._place = place
        self._upstream = upstream
        self._fronts = 0

    def _room(self) -> Path:
        self._fronts += 1
        room = self._place / f"{self._upstream}-{self._fronts}"
        room.mkdir()
        return room

    async def adapter_of_two(self, core: dict[str, Any]) -> tuple[Running, Address]:
        """With a second server, at that address, of which nobody has asked anything yet."""
        room = self._room()
        address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
        settings: dict[str, Any] = adapter_settings(self._upstream, address.port, address.bearer, room)
        settings["core"].update(core)
        (first,) = settings["servers"]
        settings["servers"].append({**first, "id": "second", "mount_path": "/mcp/second"})
        front = await self._stack.enter_async_context(adapter_with(settings, address, room))
        return front, Address(address.port, "/mcp/second", address.bearer)

    async def front(self, front: Front) -> Running:
        return await self._stack.enter_async_context(front.start(self._upstream, self._room()))


@asynccontextmanager
async def stage_with(place: Path, tools: int) -> AsyncIterator[Stage]:
    """An upstream with so many tools, while the block lasts; its fronts have their rooms in ``place``."""
    async with AsyncExitStack() as stack:
        yield Stage(stack, place, await stack.enter_async_context(upstream_with(tools)))


async def watched_first_list(address: Address) -> tuple[float, float]:
    """List the tools of a server of which nobody has asked anything yet. The longest and the median seconds for which
    somebody else, who asks the front for nothing but its health, had to wait meanwhile.
    """
    async with watched(address.port) as waits:
        client = await Client.connect(address)
        await client.initialize()
        await client.list()
        client.close()
    return waits.longest, waits.median


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
