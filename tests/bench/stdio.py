"""A call over stdio beside one over HTTP: ``python -m tests.bench.stdio [--quick]``.

Two adapters run with the same settings, one in front of the bench's upstream, one in front of a process that answers in
the same words. They take turns, a few calls each, and the figure is the CPU time of the adapter's own process for a
call: what the upstream and the process need is not counted. Ends with status 1 above the target.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvloop

from tests.bench.fronts import (
    Running,
    adapter_settings,
    adapter_with,
    end_tidily_when_terminated,
    free_port,
    upstream_running,
)
from tests.bench.load import Address, Client
from tests.bench.process import cpu_seconds
from tests.bench.report import table
from tests.bench.upstream import PROTOCOL_VERSION, TOOLS

MOST = 1.3
"""Calls over HTTP that one over stdio may cost."""

WARM = 50
AT_ONCE = 8


class Extent(NamedTuple):
    """``calls`` of each kind in each of the ``rounds``."""

    rounds: int
    calls: int


FULL = Extent(20, 400)
QUICK = Extent(2, 50)


def serve() -> None:
    """Answer as the bench's upstream does, over standard input and output."""
    for line in sys.stdin.buffer:
        message = orjson.loads(line)
        if "id" not in message:
            continue
        sys.stdout.buffer.write(_answer(message) + b"\n")
        sys.stdout.buffer.flush()


def _answer(message: dict[str, Any]) -> bytes:
    method, params = message["method"], message.get("params") or {}
    result: dict[str, Any] = {}
    if method == "initialize":
        info = {"name": "bench", "version": "1"}
        result = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": str(params["arguments"].get("text"))}]}
    return orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def measured(extent: Extent) -> dict[str, dict[str, list[float]]]:
    """CPU µs of a call by the kind of load and of upstream, round by round."""
    end_tidily_when_terminated()
    with tempfile.TemporaryDirectory(prefix="bench-") as room:
        place = Path(room)
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(upstream_running(place))
            fronts = {name: await _front(stack, name, port, place / name) for name in ("http", "stdio")}
            costs: dict[str, dict[str, list[float]]] = {}
            for load, at_once in (("seq", 1), ("conc", AT_ONCE)):
                clients = {name: await _clients(front, at_once) for name, front in fronts.items()}
                costs[load] = {name: [] for name in fronts}
                for _ in range(extent.rounds):
                    for name, front in fronts.items():
                        costs[load][name].append(await _cost(front, clients[name], extent.calls))
            return costs


async def _front(stack: AsyncExitStack, name: str, upstream: int, place: Path) -> Running:
    place.mkdir()
    address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
    settings: dict[str, Any] = adapter_settings(upstream, address.port, address.bearer, place)
    if name == "stdio":
        arguments = ["-m", "tests.bench.stdio", "--serve"]
        settings["servers"][0]["upstream"] = {
            "transport": "stdio",
            "command": sys.executable,
            "args": arguments,
        }
    return await stack.enter_async_context(adapter_with(settings, address, place))


async def _clients(front: Running, count: int) -> list[Client]:
    clients = [await Client.connect(front.address) for _ in range(count)]
    for client in clients:
        await client.initialize()
        for _ in range(WARM):
            await client.call()
    return clients


async def _cost(front: Running, clients: list[Client], calls: int) -> float:
    assert front.pid is not None
    before = cpu_seconds([front.pid])
    await asyncio.gather(*(_calls(client, calls // len(clients)) for client in clients))
    return (cpu_seconds([front.pid]) - before) / calls * 1e6


async def _calls(client: Client, count: int) -> None:
    for _ in range(count):
        await client.call()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stdio", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return 0
    costs = uvloop.run(measured(QUICK if arguments.quick else FULL))
    rows, worst = [], 0.0
    for load, of in costs.items():
        http, stdio = (statistics.median(of[name]) for name in ("http", "stdio"))
        worst = max(worst, stdio / http)
        rows.append([load, f"{http:.0f}", f"{stdio:.0f}", f"{stdio / http:.2f}"])
    print(table([["load", "HTTP µs", "stdio µs", f"× (at most {MOST})"], *rows]))
    return int(worst > MOST and not arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
