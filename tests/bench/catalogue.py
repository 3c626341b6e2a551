"""What guarding catalogues costs: ``python -m tests.bench.catalogue [--rounds N] [--sessions N]``.

The adapter with pinning, sanitizing and a description policy on stands beside one with all of it off, whose lists are
piped, and beside nginx and a bare relay. Each figure is the CPU time of the proxy's process tree; rounds go back and
forth, and the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import uvloop

from tests.bench.figures import Spread
from tests.bench.fronts import (
    FRONTS,
    ROOT,
    Front,
    Running,
    adapter,
    adapter_settings,
    adapter_with,
    end,
    end_tidily_when_terminated,
    free_port,
)
from tests.bench.load import Address, Client
from tests.bench.machine import Machine
from tests.bench.process import cpu_seconds, rss_bytes, tree
from tests.bench.results import BARE, BASELINE
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
AT_ONCE = 10
SETTLE = 0.3


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
async def _upstream(count: int) -> AsyncIterator[int]:
    argv = [sys.executable, "-m", "tests.bench.catalogue", "--serve", str(count)]
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

    async def adapter(self, core: dict[str, Any]) -> Running:
        return await self._stack.enter_async_context(adapter(self._upstream, self._room(), core=core))

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
        yield Stage(stack, place, await stack.enter_async_context(_upstream(tools)))


Work = Callable[[Client], Awaitable[object]]


async def _microseconds(fronts: list[Running], work: Work, count: int, rounds: int) -> list[list[float]]:
    """CPU µs of each front for one piece of work on a warm session, by round."""
    clients = []
    for front in fronts:
        client = await Client.connect(front.address)
        await client.initialize()
        await client.list()
        clients.append(client)
    spent: list[list[float]] = [[] for _ in fronts]
    for number in range(rounds + 1):
        for front, client, samples in zip(fronts, clients, spent, strict=True):
            assert front.pid is not None
            pids = tree(front.pid)
            before = cpu_seconds(pids)
            for _ in range(count):
                await work(client)
            if number:
                samples.append((cpu_seconds(pids) - before) / count * 1e6)
    for client in clients:
        client.close()
    return spent


async def _pinned_rss(stage: Stage, core: dict[str, Any], sessions: int) -> int:
    """Bytes that so many sessions, each of which has listed the tools, add to a front's memory."""
    front = await stage.adapter(core)
    assert front.pid is not None

    async def leave(count: int) -> None:
        client = await Client.connect(front.address)
        for _ in range(count):
            await client.initialize()
            await client.list()
        client.close()

    await leave(100)
    before = rss_bytes(tree(front.pid))
    await asyncio.gather(*(leave(sessions // AT_ONCE) for _ in range(AT_ONCE)))
    await asyncio.sleep(SETTLE)
    return rss_bytes(tree(front.pid)) - before


async def _first_list(stage: Stage) -> tuple[float, float, float]:
    """CPU seconds that the first list takes a guarding front more than one that pipes it; and the longest and the
    median seconds for which somebody else had to wait meanwhile.
    """
    spent = []
    for core in (OPEN, GUARDED):
        front = await stage.adapter(core)
        assert front.pid is not None
        client = await Client.connect(front.address)
        await client.initialize()
        await client.list()
        # All since its start: a call that comes first has the list read before it.
        spent.append(cpu_seconds(tree(front.pid)))
        client.close()
    _, address = await stage.adapter_of_two(GUARDED)
    return spent[1] - spent[0], *await watched_first_list(address)


async def watched_first_list(address: Address) -> tuple[float, float]:
    """List the tools of a server of which nobody has asked anything yet. The longest and the median seconds for which
    somebody else, who asks the front for nothing but its health, had to wait meanwhile.
    """
    argv = [sys.executable, "-m", "tests.bench.stalls", str(address.port)]
    watching = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert watching.stdin is not None and watching.stdout is not None
    await watching.stdout.readline()
    client = await Client.connect(address)
    await client.initialize()
    await client.list()
    client.close()
    watching.stdin.close()
    told = await watching.stdout.read()
    await watching.wait()
    longest, median = map(float, told.split())
    return longest, median


async def run(rounds: int, sessions: int) -> None:
    end_tidily_when_terminated()
    print(Machine.here(), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        place = Path(name)
        async with stage_with(place, 500) as stage:
            fronts = [await stage.adapter(OPEN), await stage.adapter(GUARDED)]
            plain, guarded = await _microseconds(
                fronts, lambda client: client.call("echo", a=1), 1000, rounds
            )
            _say("tools/call, guarded", guarded, "all off", plain, 1.05)
            plain, guarded = await _microseconds(fronts, Client.list, 200, rounds)
            _say("tools/list of 500, guarded", guarded, "piped", plain, 3)
        async with stage_with(place, 50) as stage:
            anchors = [await stage.front(FRONTS[name]) for name in (BASELINE, BARE)]
            fronts = [*anchors, await stage.adapter(OPEN), await stage.adapter(GUARDED)]
            proxied, relayed, plain, guarded = await _microseconds(fronts, Client.list, 1000, rounds)
            _say("tools/list of 50, guarded", guarded, "piped", plain, 3)
            _say("tools/list of 50, guarded", guarded, "nginx", proxied, 3)
            _say("tools/list of 50, guarded", guarded, "bare relay", relayed, None)
            rss = [await _pinned_rss(stage, core, sessions) for core in (OPEN, GUARDED)]
            each = (rss[1] - rss[0]) / sessions
            print(
                f"{sessions} sessions: {rss[1] / 2**20:.1f} MiB pinned, {rss[0] / 2**20:.1f} not: {each:.0f} B each"
            )
        async with stage_with(place, 10_000) as stage:
            fronts = [await stage.adapter(OPEN), await stage.adapter(GUARDED)]
            plain, guarded = await _microseconds(fronts, Client.list, 10, rounds)
            _say("tools/list of 10000, guarded", guarded, "piped", plain, 2)
            cpu, longest, median = await _first_list(stage)
            print(f"first tools/list of 10000: {cpu:.2f} s of CPU more than piped (must: 1)")
            print(
                f"others wait {longest * 1e3:.0f} ms at most for it, {median * 1e3:.1f} in the median (must: 50)"
            )


def _say(what: str, guarded: list[float], beside: str, plain: list[float], must: float | None) -> None:
    """Print the costs of two fronts and their ratio: the median of the rounds (from – to)."""
    ratio = Spread.of([own / base for own, base in zip(guarded, plain, strict=True)]).text(3)
    bound = "" if must is None else f" (must: {must})"
    own, base = Spread.of(guarded).text(0), Spread.of(plain).text(0)
    print(f"{what}: {own} µs; {beside}: {base} µs; ratio {ratio}{bound}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.catalogue")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    uvloop.run(_serve(given.serve) if given.serve else run(given.rounds, given.sessions))


if __name__ == "__main__":
    main()
