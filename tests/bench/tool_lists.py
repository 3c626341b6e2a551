"""Lists of 50 tools: what the first one of a process, the first one of a session and the next ones cost.

``python -m tests.bench.tool_lists`` is an upstream with that many tools; it prints its port.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import uvloop

from tests.bench.fronts import (
    FRONTS,
    Front,
    Running,
    adapter_settings,
    adapter_with,
    free_port,
    upstream_running,
)
from tests.bench.load import Address, Client
from tests.bench.process import cpu_seconds, tree
from tests.bench.results import BARE, BASELINE, SUBJECT
from tests.bench.run import Run, progress
from tests.bench.scenarios import SETTLE, Scenario, measure, tool_lists, warmed
from tests.bench.upstream import UpstreamConnection, json_answer, serve

PART = "lists"
TOOLS = 50
SESSIONS = 100
GUARDING = "adapter, guarded"
"""The adapter with all policies of tools; the front ``adapter`` of this part pipes its lists."""

FIRST = f"session and first list of {TOOLS}, CPU ms"
"""Of a session that asks for the tools before anybody else did."""
OF_SESSION = f"first list of a later session, {TOOLS}, CPU µs"
WARM = f"next list of {TOOLS}, CPU µs"

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

_NEXT = Scenario(PART, PART, tool_lists, 2000)
_FIRST = Scenario(PART, PART, tool_lists, SESSIONS, clients=SESSIONS, least=0)


def definitions(count: int) -> list[dict[str, Any]]:
    """So many tools as real servers have them: 600 bytes, some of them too long for the description policy."""
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
    """The bench's upstream with a longer list, made once."""

    result = orjson.dumps({"tools": definitions(TOOLS)})

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("method") == "tools/list":
            self._write(json_answer(message["id"], self.result))
        else:
            super()._answer(message)


def _adapter(name: str, core: dict[str, Any]) -> Front:
    """The adapter with a second server, at its address: the start asks only the first one for a session."""

    @asynccontextmanager
    async def start(upstream: int, place: Path) -> AsyncIterator[Running]:
        address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
        settings: dict[str, Any] = adapter_settings(upstream, address.port, address.bearer, place)
        settings["core"].update(core)
        (first,) = settings["servers"]
        settings["servers"].append({**first, "id": "second", "mount_path": "/mcp/second"})
        async with adapter_with(settings, address, place) as running:
            yield Running(address._replace(path="/mcp/second"), running.pid)

    return Front(name, name, start)


async def measure_lists(run: Run) -> None:
    """Start every front anew in each round, since a list is the first one only once."""
    anchors = [FRONTS[name] for name in (BASELINE, BARE) if run.has(name)]
    fronts = [*anchors, _adapter(SUBJECT, OPEN), _adapter(GUARDING, GUARDED)]
    async with upstream_running(run.room(PART), "tests.bench.tool_lists") as upstream:
        for number in range(1, run.extent.rounds + 1):
            progress(f"round {number} of {run.extent.rounds}: {TOOLS} tools")
            for front in fronts:
                with run.noting(PART, front.name):
                    async with front.start(upstream, run.room(PART, number, front.name)) as running:
                        await _measure(run, front.name, running)


async def _measure(run: Run, name: str, front: Running) -> None:
    assert front.pid is not None
    pids = tree(front.pid)
    before = cpu_seconds(pids)
    client = await Client.connect(front.address)
    await client.initialize()
    await client.list()
    spent = cpu_seconds(pids) - before
    client.close()
    later = await measure(_NEXT, front, int(_NEXT.count * run.extent.part))
    assert later.cpu is not None
    run.results.figures.add(PART, FIRST, name, spent * 1e3)
    run.results.figures.add(PART, WARM, name, later.cpu)
    run.results.figures.add(PART, OF_SESSION, name, await _first_of_sessions(front, pids))


async def _first_of_sessions(front: Running, pids: list[int]) -> float:
    """µs of CPU for the first list of a session, one session after another."""
    async with warmed(_FIRST, front) as clients:
        before = cpu_seconds(pids)
        for client in clients:
            await client.list()
        await asyncio.sleep(SETTLE)
        return (cpu_seconds(pids) - before) * 1e6 / len(clients)


if __name__ == "__main__":
    uvloop.run(serve(ListingConnection))
