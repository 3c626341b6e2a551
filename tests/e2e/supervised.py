"""The adapter with workers as real processes: who they are, what they log, and clients that keep it busy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.processes import Adapter, adapter
from tests.edge.raw import Exchange, RawClient, RawUpstream, Script, result
from tests.waiting import until

PATIENCE = 30.0
"""Seconds for anything that a busy machine may take its time for."""


@dataclass
class Scripted:
    """Answers calls of ``tool`` at once, and calls of ``wait`` when ``go`` is set; a GET stream is silent for ever."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        message: dict[str, Any] = exchange.message
        if exchange.head.method == "GET":
            await exchange.begin_stream()
            await exchange.gone()
            return
        if message["method"] == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("tool", "wait")]
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}
            await exchange.json(json.dumps(answer).encode())
            return
        if message.get("params", {}).get("name") == "wait":
            self.waiting.set()
            await self.go.wait()
        await exchange.json(result(message["id"]))


@dataclass
class Supervised:
    """An adapter with workers, its upstream and what that does."""

    front: Adapter
    upstream: RawUpstream
    script: Scripted

    @property
    def port(self) -> int:
        return self.front.port

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self.front.running is not None
        return self.front.running.process.pid

    @property
    def workers(self) -> list[int]:
        """The processes of the workers, the oldest first."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log so far."""
        # The last line may just be written.
        whole = (self.front.place / "adapter.log").read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [line for line in self.lines if line.get("event") == event]

    async def until(self, there: Callable[[], bool]) -> None:
        """Wait until the processes or the log are so."""
        await until(there, PATIENCE)

    async def serving(self, times: int) -> None:
        """Wait until so many workers have said that they serve, since the start."""
        await self.until(lambda: len(self.logged("serving")) >= times)

    @property
    def settings(self) -> dict[str, Any]:
        """What the settings file says."""
        found: dict[str, Any] = json.loads((self.front.place / "adapter.json").read_text())
        return found

    def write(self, settings: dict[str, Any] | str) -> None:
        """Write the settings file as editors do: a new one takes its place."""
        new = self.front.place / "new.json"
        new.write_text(settings if isinstance(settings, str) else json.dumps(settings))
        new.replace(self.front.place / "adapter.json")

    def reread(self, settings: dict[str, Any] | str) -> None:
        """Write other settings, and have them read."""
        self.write(settings)
        os.kill(self.pid, signal.SIGHUP)

    def replace(self) -> None:
        """Have the workers replaced, as for any key that a process cannot change."""
        settings = self.settings
        settings["core"] |= {"max_connections": 1000}
        self.reread(settings)

    async def ended(self) -> int:
        """The exit status of the supervisor, once it has ended."""
        assert self.front.running is not None
        process = self.front.running.process
        async with asyncio.timeout(PATIENCE):
            await process.communicate()
        assert process.returncode is not None
        return process.returncode


@asynccontextmanager
async def supervised(
    place: Path,
    *,
    workers: int = 2,
    server: dict[str, Any] | None = None,
    telemetry: dict[str, Any] | None = None,
    console: dict[str, Any] | None = None,
    script: Script | None = None,
    **core: Any,
) -> AsyncIterator[Supervised]:
    """Yields when all workers serve, in front of the upstream or of ``server``, members of an entry of ``servers``.

    The upstream does what ``script`` says, or else what Scripted does.
    """
    scripted = Scripted()
    core = {"workers": workers, "watch": False, "upstream_ping": {"enabled": False}, **core}
    given = {"telemetry": telemetry, "console": console}
    more: dict[str, Any] = {name: section for name, section in given.items() if section is not None}
    async with RawUpstream(script or scripted) as up:
        try:
            async with adapter(place, up.url, entry=server, core=core, **more) as front:
                found = Supervised(front, up, scripted)
                await found.serving(workers)
                yield found
        finally:
            scripted.go.set()


@dataclass
class Load:
    """Clients that call without a pause, each on a connection that it keeps as long as it may.

    ``outcomes`` counts what they met: ``ok``, ``refused`` for a connection that could not be opened, ``broken`` for a
    call whose connection ended before its answer, and other answers by their status.
    """

    port: int
    clients: int = 8
    outcomes: Counter[str] = field(default_factory=Counter)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """Call until the block ends; each client finishes the call that it has begun."""
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self._client(stop)) for _ in range(self.clients)]
        try:
            yield self
        finally:
            stop.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*tasks)

    async def more(self, calls: int) -> None:
        """Wait for so many more good calls."""
        goal = self.outcomes["ok"] + calls
        await until(lambda: self.outcomes["ok"] >= goal, PATIENCE)

    async def _client(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                client = await RawClient(self.port).__aenter__()
            except OSError:
                self.outcomes["refused"] += 1
                await asyncio.sleep(0.01)
                continue
            with contextlib.closing(client):
                await self._talk(client, stop)

    async def _talk(self, client: RawClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                head, body = await client.modern_call()
            except (OSError, asyncio.IncompleteReadError):
                self.outcomes["broken"] += 1
                return
            self.outcomes["ok" if body == result(1) else str(head.status)] += 1
            if head.get("connection") == "close":
                return
            await asyncio.sleep(0.001)
