"""Clients of each era at servers of each era, over each transport, feature by feature, through the adapter.

What a client finds directly at a server of both eras it must find everywhere, but for ``MISSING``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.processes import Adapter, Server, start
from tests.e2e.provision import HERE, ROOT, packages

MODULE = "tests.e2e.eras_server"
PATIENCE = 180.0
"""Seconds for all that one client finds."""

FEATURES = (
    "connect",
    "tools",
    "call",
    "progress",
    "log",
    "elicit",
    "sample",
    "roots",
    "resource",
    "prompt",
    "list_changed",
    "subscribe",
    "cancel",
    "after",
)

CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "python_v2 auto",
    "python_v2 2026-07-28",
    "ts_v1",
    "ts_v2 legacy",
    "ts_v2 auto",
    "ts_v2 2026-07-28",
    "fastmcp_v4",
)
"""SDK and mode."""

ERAS = ("legacy", "modern", "both")
UPSTREAMS = (*(f"http {era}" for era in ERAS), "sse legacy", *(f"stdio {era}" for era in ERAS))
"""Transport and eras."""

MISSING: Mapping[tuple[str, str], frozenset[str]] = {}
"""What a client does not have at an upstream, though it has it at a server of both eras."""

Found = Mapping[str, str]
"""What came of each feature; that of a failure begins with ``!``."""


class Clients:
    """The scripts of ``clients/features.py``, by the name of the client."""

    def __init__(self, node: Path, mcp1: Path, fastmcp4: Path, place: Path) -> None:
        self._node = node
        self._pythons = {"python_v1": mcp1, "python_v2": Path(sys.executable), "fastmcp_v4": fastmcp4}
        self._log = place / "clients.log"

    async def find(self, name: str, targets: Mapping[str, str]) -> dict[str, Found]:
        """What the client finds at all of these URLs at once."""
        sdk, _, mode = name.partition(" ")
        questions = json.dumps({"sdk": sdk, "mode": mode, "targets": targets})
        environment = {"NODE_PACKAGES": str(packages())}
        async with await start([*self._program(sdk), questions], self._log, environment) as running:
            found: dict[str, Found] = json.loads(await running.line(PATIENCE))
        return found

    def _program(self, sdk: str) -> list[str | Path]:
        if sdk.startswith("ts_"):
            return [self._node, HERE / "clients" / "features.mjs"]
        script = sdk.removeprefix("python").replace("fastmcp_v", "_fastmcp")
        return [self._pythons[sdk], "-m", f"tests.e2e.clients.features{script}"]


def lacks(direct: Found, through: Found) -> frozenset[str]:
    """The features that are not as they are directly."""
    return frozenset(name for name, text in direct.items() if through.get(name) != text)


@asynccontextmanager
async def servers(place: Path, names: Sequence[str]) -> AsyncIterator[dict[str, dict[str, Any]]]:
    """The ``upstream`` sections of their settings, by their names."""
    async with AsyncExitStack() as stack:
        sections: dict[str, dict[str, Any]] = {}
        for name in names:
            transport, era = name.split()
            room = place / name
            room.mkdir()
            if transport == "stdio":
                arguments = ["-m", MODULE, "stdio", era]
                sections[name] = {
                    "transport": "stdio",
                    "command": sys.executable,
                    "args": arguments,
                    "cwd": str(ROOT),
                }
                continue
            more = ("both", "sse") if transport == "sse" else (era,)
            server = await stack.enter_async_context(Server(MODULE, room, more))
            sections[name] = {
                "transport": "sse" if transport == "sse" else "streamable_http",
                "url": server.url,
            }
        yield sections


def mounts(sections: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings of a mount for each of them."""
    return [
        {"id": _id(name), "mount_path": f"/{_id(name)}", "upstream": upstream}
        for name, upstream in sections.items()
    ]


def fronting(place: Path, sections: Mapping[str, dict[str, Any]], **more: Any) -> Adapter:
    """The adapter with a mount for each of them."""
    return Adapter(place, {"storage": {"root": str(place / "data")}, "servers": mounts(sections), **more})


async def eras_known(base: str) -> None:
    """Returns when the adapter at ``base`` has found the eras of all servers."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"{base}/healthz") as response:
                seen = await response.json()
            if all(server["eras"] for server in seen["servers"]):
                return
            await asyncio.sleep(0.05)


def targets(front: str, names: Sequence[str]) -> dict[str, str]:
    """The URLs of the mounts."""
    return {name: f"{front}/{_id(name)}" for name in names}


def _id(name: str) -> str:
    return name.replace(" ", "-")
