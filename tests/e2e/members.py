"""Servers of a merged mount as processes of their own, which tests kill, stop and give other tools."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.processes import Adapter, Server, adapter

PATIENCE = 60.0
"""Seconds for what comes by itself, on a machine with much else to do."""

MISSING = "mcp-file-adapter/missing"


class Member(Server):
    """A server in the folder of its name, with tools that the test chooses and calls that it counts."""

    def __init__(self, place: Path, tools: Iterable[str]) -> None:
        place.mkdir()
        (place / "ran.txt").touch()
        super().__init__("tests.e2e.member_server", place, [place])
        self.offer(*tools)

    def offer(self, *tools: str) -> None:
        """Have these tools from now on."""
        (self.place / "tools.json").write_text(json.dumps(tools))

    @property
    def ran(self) -> Counter[str]:
        """What was called, each tool with its text, and how often."""
        return Counter((self.place / "ran.txt").read_text().splitlines())

    def stand_still(self) -> None:
        """SIGSTOP: its port takes connections, and nothing is answered."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    async def stop(self) -> None:
        """Ends it, also while it stands still."""
        if self.running is not None and self.running.process.returncode is None:
            self.go_on()
        await super().stop()

    def _send(self, number: signal.Signals) -> None:
        assert self.running is not None
        os.killpg(self.running.process.pid, number)


@asynccontextmanager
async def members(place: Path, **tools: Sequence[str]) -> AsyncIterator[dict[str, Member]]:
    """Servers with these tools, by their ids."""
    async with AsyncExitStack() as stack:
        found = {name: Member(place / name, each) for name, each in tools.items()}
        await asyncio.gather(*(stack.enter_async_context(each) for each in found.values()))
        yield found


def merged(place: Path, servers: Mapping[str, Member], mount: Mapping[str, Any], **sections: Any) -> Adapter:
    """The adapter with these servers merged at ``/mcp/all``; ``mount`` has more of its keys."""
    return adapter(place, "", **merged_settings(servers, mount, **sections))


def merged_settings(
    servers: Mapping[str, Member], mount: Mapping[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """The sections of settings with these servers merged at ``/mcp/all``."""
    entries = [
        {"id": name, "mount_path": f"/mcp/{name}", "upstream": {"url": each.url}}
        for name, each in servers.items()
    ]
    everything = {"id": "all", "servers": ["*"], "list_timeout_seconds": 1, **(mount or {})}
    return {"servers": entries, "mounts": [everything], **sections}


class Listener:
    """The SDK's client at a mount. ``changes`` counts what it was told of changed lists of tools."""

    def __init__(self, client: Client, changes: asyncio.Queue[None]) -> None:
        self.client = client
        self._changes = changes

    async def listed(self) -> tuple[list[str], list[str]]:
        """The names of the tools, and the servers that are missing."""
        found = await self.client.list_tools(cache_mode="bypass")
        return [tool.name for tool in found.tools], [*(found.meta or {}).get(MISSING, {})]

    async def told(self) -> None:
        """Wait until it is told once more."""
        async with asyncio.timeout(PATIENCE):
            await self._changes.get()

    async def until(self, *tools: str) -> None:
        """Wait until these are the tools and nothing is missing, looking whenever it is told of a change."""
        async with asyncio.timeout(PATIENCE):
            while await self.listed() != ([*tools], []):
                await self._changes.get()


@asynccontextmanager
async def listener(url: str, mode: str, **options: Any) -> AsyncIterator[Listener]:
    """A client of either era that listens to what the mount says beside its requests; ``options`` are the SDK's."""
    changes: asyncio.Queue[None] = asyncio.Queue()

    async def told(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changes.put_nowait(None)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(streamable_http_client(url), mode=mode, message_handler=told, cache=None, **options)
        )
        if mode != "legacy":
            heard = await stack.enter_async_context(client.listen(tools_list_changed=True))

            async def pump() -> None:
                async for _ in heard:
                    changes.put_nowait(None)

            pumping = asyncio.create_task(pump())
            stack.callback(pumping.cancel)
        yield Listener(client, changes)
