"""Several processes of the adapter that serve as one: replicas on one Redis behind nginx, or workers of one host."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.balancer import balancer_argv
from tests.e2e.processes import Adapter, Running, adapter, listens, start
from tests.missing import Missing
from tests.ports import free_port
from tests.reaper import KEEPS_ENVIRONMENT


@dataclass(frozen=True)
class Serving:
    """``url``: the mount of the first server, where every request may reach another process: one of ``replicas``."""

    base: str
    mount: str = "/mcp"
    replicas: Sequence[Adapter] = ()

    @property
    def url(self) -> str:
        return f"{self.base}{self.mount}"


def redis_program() -> str:
    """The path of redis-server. Raises Missing."""
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("redis-server is not installed")
    return program


def redis_argv(port: int, place: Path) -> list[str]:
    """A Redis that has each write on disk before its answer leaves, so that a killed one has lost nothing.

    Raises Missing.
    """
    durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *KEEPS_ENVIRONMENT]
    return [redis_program(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place), *durable]


@asynccontextmanager
async def serving(
    place: Path, upstream: str, *, replicas: int = 1, workers: int = 1, **sections: Any
) -> AsyncIterator[Serving]:
    """The adapter in front of ``upstream``, as one process or as many; ``sections`` as for ``adapter``."""
    if replicas > 1:
        async with replicated(place, upstream, replicas, **sections) as front:
            yield front
        return
    if workers > 1:
        sections["core"] = {**sections.get("core", {}), "workers": workers}
    async with adapter(place, upstream, **sections) as single:
        yield Serving(single.base)


@asynccontextmanager
async def replicated(
    place: Path,
    upstream: str,
    number: int,
    *,
    adapters: Sequence[Mapping[str, Any]] = (),
    port: int | None = None,
    server: Mapping[str, Any] | None = None,
    balancer: Callable[[Path, int, Sequence[int]], list[str]] = balancer_argv,
    **sections: Mapping[str, Any],
) -> AsyncIterator[Serving]:
    """So many replicas on one Redis and one ``storage.root``, behind a ``balancer`` without any stickiness.

    ``port`` is the balancer's, for settings that name it; None chooses one. ``server`` are more settings of the server.
    """
    async with AsyncExitStack() as stack:
        redis = await beside(stack, place / "redis", redis_argv)
        shared = {
            "storage": {"root": str(place / "data")},
            "state_persistence": {"type": "redis", "redis": {"host": "127.0.0.1", "port": redis}},
        }
        entry = {
            "id": "upstream",
            "mount_path": "/mcp",
            "upstream": {"url": upstream},
            "adapters": list(adapters),
            **(server or {}),
        }
        fronts: list[Adapter] = []
        for each in range(number):
            room = place / f"replica-{each + 1}"
            room.mkdir()
            fronts.append(Adapter(room, {**shared, "servers": [entry], **sections}))
            stack.push_async_callback(fronts[-1].stop)
            await fronts[-1].start()
        ports = [front.port for front in fronts]
        front = port or free_port()
        await beside(stack, place / "balancer", lambda at, room: balancer(room, at, ports), front)
        yield Serving(f"http://127.0.0.1:{front}", replicas=fronts)


async def beside(
    stack: AsyncExitStack, room: Path, argv: Callable[[int, Path], list[str]], port: int | None = None
) -> int:
    """Start a server with a directory of its own; its port, once it listens there."""
    room.mkdir()
    port = port or free_port()
    running: Running = await start(argv(port, room), room / "output.log")
    stack.push_async_callback(running.stop)
    await listens(port, running)
    return port
