"""A mount of 50 servers with 200 tools each: what a call and a list cost there, and at a server's own address.

``python -m tests.bench.mounts NUMBER`` is an upstream with that many tools; it prints its port.
"""

from __future__ import annotations

import secrets
import sys
from functools import partial
from typing import Any

import orjson
import uvloop

from tests.bench.fronts import Running, adapter_settings, adapter_with, free_port, upstream_running
from tests.bench.load import Address, Client
from tests.bench.run import Run, progress
from tests.bench.scenarios import Observed, Scenario, measure, tool_lists
from tests.bench.tool_lists import ListingConnection, definitions
from tests.bench.upstream import serve

PART = "mounts"
SERVERS, TOOLS = 50, 200
PAGE = 1000
"""Tools on a page of a mount's list; one server has as many, for the comparison."""

OWN, MOUNT = "own address", "mount"
CALL = "call, CPU µs"
LIST = f"next list of {PAGE}, CPU µs"


async def _calls(tool: str, client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        await client.call(tool, a=1, b=2)


def _called(tool: str) -> Scenario:
    return Scenario(PART, PART, partial(_calls, tool), 2000)


_LISTED = Scenario(PART, PART, tool_lists, 200)


async def measure_mounts(run: Run) -> None:
    """Measure each at both addresses of one adapter, in turns."""
    room = run.room(PART)
    async with (
        upstream_running(room, "tests.bench.mounts", str(TOOLS)) as few,
        upstream_running(run.room(PART, "many"), "tests.bench.mounts", str(PAGE)) as many,
    ):
        address = Address(free_port(), "/mcp/many", secrets.token_hex(16))
        settings: dict[str, Any] = adapter_settings(many, address.port, address.bearer, room)
        (one,) = settings["servers"]
        members = [f"server{number}" for number in range(SERVERS)]
        url = one["upstream"] | {"url": f"http://127.0.0.1:{few}/mcp"}
        settings["servers"] = [one | {"id": "many", "mount_path": "/mcp/many"}]
        settings["servers"] += [{"id": name, "upstream": url} for name in members]
        settings["mounts"] = [{"id": "all", "servers": members}]
        settings["core"]["tool_definition_pinning"] = {"mode": "off"}
        async with adapter_with(settings, address, room) as front:
            for number in range(1, run.extent.rounds + 1):
                progress(f"round {number} of {run.extent.rounds}: a mount of {SERVERS} servers")
                await _measure(run, front)


async def _measure(run: Run, front: Running) -> None:
    def at(path: str) -> Running:
        return Running(front.address._replace(path=path), front.pid)

    for measured, name, scenario, path in (
        (CALL, OWN, _called("echo"), "/mcp/server0"),
        (CALL, MOUNT, _called("server0_echo"), "/mcp/all"),
        (LIST, OWN, _LISTED, "/mcp/many"),
        (LIST, MOUNT, _LISTED, "/mcp/all"),
    ):
        found = await measure(scenario, at(path), int(scenario.count * run.extent.part))
        assert found.cpu is not None
        run.results.figures.add(PART, measured, name, found.cpu)


if __name__ == "__main__":
    ListingConnection.result = orjson.dumps({"tools": definitions(int(sys.argv[1]))})
    uvloop.run(serve(ListingConnection))
