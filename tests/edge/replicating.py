"""Several whole adapters over one store, each with a listener of its own, as replicas on several machines are."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from adapter.app import App, build, running
from adapter.relay.replicas.registry import Replicas
from adapter.settings.root import Settings
from tests.edge.conftest import merged
from tests.edge.raw import RawClient, read_chunk
from tests.state.shared import ReplicaStore, SharedMemory
from tests.upstream.stdio.scripted import SERVER
from tests.waiting import until

PATIENCE = 20.0
"""Seconds that anything may take on a busy machine."""


class Replica:
    """One running adapter with a server ``raw`` at ``/mcp``."""

    def __init__(self, app: App, port: int, store: ReplicaStore) -> None:
        self.app = app
        self.port = port
        self.store = store

    @property
    def registry(self) -> Replicas:
        """The replicas as this one sees them."""
        assert self.app.replicas is not None
        return self.app.replicas.replicas

    @property
    def processes(self) -> int:
        """The children that it has."""
        use = self.app.servers["raw"].process_use()
        assert use is not None, "its server consists of processes"
        return use.running

    async def exchanges(self, number: int) -> None:
        """Wait until so many exchanges are under way in it."""
        await until(lambda: f" {number} exchanges" in repr(self.app.front), PATIENCE)

    async def without_processes(self) -> None:
        """Wait until its last child has ended."""
        await until(lambda: not self.processes, PATIENCE)

    def client(self, session: str | None = None) -> RawClient:
        client = RawClient(self.port)
        client.session = session
        return client


class Site:
    """Replicas by name, all over the same rows and files. Those that are left stop with the site."""

    def __init__(self, place: Path, server: dict[str, Any], more: dict[str, Any]) -> None:
        self.memory = SharedMemory()
        self._place = place
        self._server = server
        self._more = more
        self._stops: dict[str, contextlib.AsyncExitStack] = {}

    async def start(self, name: str, **more: Any) -> Replica:
        """Start a replica of that id."""
        store = self.memory.replica()
        app = build(Settings.model_validate(self._settings(name, more)), store=store)
        stack = self._stops[name] = contextlib.AsyncExitStack()
        _, port = await stack.enter_async_context(running(app))
        return Replica(app, port, store)

    async def stop(self, name: str) -> None:
        """Stop a replica in good order."""
        await self._stops.pop(name).aclose()

    async def kill(self, name: str, replica: Replica) -> None:
        """End a replica as a kill does: its listener and its children are gone, its row stays."""
        replica.store.down = True
        await self.stop(name)

    async def stop_all(self) -> None:
        """Stop all that are left."""
        for name in list(self._stops):
            await self.stop(name)

    def _settings(self, name: str, more: dict[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "core": {
                "port": 0,
                "shutdown_grace_seconds": 0,
                "upstream_ping": {"enabled": False},
                "tool_definition_pinning": {"mode": "off"},
                "replica": {"id": name},
            },
            "storage": {"root": str(self._place / "files")},
            "servers": [merged({"id": "raw", "mount_path": "/mcp"}, self._server)],
        }
        return merged(merged(settings, self._more), more)


def child_server(place: Path) -> dict[str, Any]:
    """A server that is a process and does what a test tells it."""
    program = place / "server.py"
    program.write_text(SERVER)
    return {"upstream": {"transport": "stdio", "command": sys.executable, "args": ["-S", str(program)]}}


@contextlib.asynccontextmanager
async def site(place: Path, server: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Site]:
    """A site of replicas; by default their server is a process that does what a test tells it."""
    found = Site(place, child_server(place) if server is None else server, more)
    try:
        yield found
    finally:
        await found.stop_all()


@contextlib.asynccontextmanager
async def two_replicas(
    place: Path, server: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[tuple[Site, Replica, Replica, RawClient]]:
    """A site with the replicas a and b, and a client of a with a session; all else as for ``site``."""
    async with site(place, server, **more) as found:
        a, b = await found.start("a"), await found.start("b")
        async with a.client() as first:
            await first.initialize()
            yield found, a, b, first


# --- messages ---------------------------------------------------------------------------------------------------


def tool(name: str, number: int = 1, token: str | None = None, **arguments: Any) -> bytes:
    """A call of a tool of the server."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


async def call(client: RawClient, name: str, number: int = 1, **arguments: Any) -> Any:
    """The response to a call, whether it came as JSON or at the end of a stream."""
    async with asyncio.timeout(PATIENCE):
        head, body = await client.request("POST", tool(name, number, **arguments))
    assert head.status == 200, (head, body)
    return messages(body)[-1]


def messages(body: bytes) -> list[Any]:
    """The messages of a JSON body, or of whole events."""
    if not body.startswith((b"id:", b"data:", b"event:", b":", b"retry:")):
        return [orjson.loads(body)]
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines]


async def next_message(client: RawClient) -> Any:
    """The next message on a stream whose head was read."""
    got = b""
    async with asyncio.timeout(PATIENCE):
        while not (got.endswith(b"\n\n") and b"data: " in got):
            got += await read_chunk(client.reader)
    return messages(got)[-1]
