"""The shapes of a deployment that a run puts under load: one adapter, workers of one host, or replicas behind nginx.

``STATE``: the one process keeps its state in SQLite, and so do workers. Replicas share one Redis; nginx, configured by
the file in deploy/, gives each request to the next of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.balancer import balancer_argv
from tests.e2e.processes import answers
from tests.e2e.replicas import redis_argv
from tests.faults.nodes import Node
from tests.faults.surroundings import Clocks, Disk
from tests.faults.wire import Wire
from tests.ports import free_port

Json = dict[str, Any]

MOUNT, PINNED = "/mcp", "/pinned"
"""The two servers, both with the same upstream: at the second a changed definition ends the session."""

CALL_TIMEOUT = 3.0
"""Seconds of silence after which the adapter gives up an upstream."""

QUOTA = 400_000
"""Bytes of one session."""

TTL = 900.0
"""Seconds that files are kept: longer than a run of the checks, and than any clock jumps."""

ADAPTERS = (
    {"type": "upload_consumer", "tools": ["digest"], "file_path_argument": "path"},
    {"type": "artifact_producer", "tools": ["write"], "output_path_argument": "filename"},
)


@dataclass(frozen=True)
class Shape:
    """``replicas``: processes behind nginx on one Redis. ``workers``: processes of one host on SQLite. Not both."""

    replicas: int = 1
    workers: int = 1

    def __str__(self) -> str:
        if self.replicas > 1:
            return f"{self.replicas} replicas"
        return f"{self.workers} workers" if self.workers > 1 else "one replica"

    @property
    def grace(self) -> float:
        """Seconds after the end of a session in which another process may still serve it."""
        return 0.0 if max(self.replicas, self.workers) == 1 else 1.25


@dataclass
class Deployment:
    """A deployment that serves at ``port``.

    ``fronts``: the wires through which requests come to replicas. ``backs``: those of replicas to what they need.
    """

    shape: Shape
    place: Path
    disk: Disk
    clocks: Clocks
    more: Callable[[Json], Json]
    port: int = 0
    adapters: list[Node] = field(default_factory=list)
    others: list[Node] = field(default_factory=list)
    fronts: dict[str, Wire] = field(default_factory=dict)
    backs: dict[str, Wire] = field(default_factory=dict)

    @property
    def journal(self) -> Path:
        """Where the upstream records what it executes."""
        return self.place / "executions"

    @property
    def nodes(self) -> list[Node]:
        return [*self.others, *self.adapters]

    async def ready(self) -> None:
        """Return when each adapter has reached its upstream and its state."""
        for node in self.adapters:
            assert node.running is not None
            await answers(f"http://127.0.0.1:{node.port}/readyz", node.running)


def settings(deployment: Deployment, port: int, upstream: int, state: Json) -> Json:
    """The settings of one replica."""
    url = f"http://127.0.0.1:{upstream}/mcp"
    ping = {"interval_seconds": 1, "timeout_seconds": 1, "open_cooldown_seconds": 1}
    server = {"upstream": {"url": url}, "adapters": ADAPTERS}
    core: dict[str, Any] = {
        "port": port,
        "shutdown_grace_seconds": 2,
        "allow_artifacts_download": True,
        "cleanup_interval_seconds": 1,
        "defaults": {"tool_call_timeout_seconds": CALL_TIMEOUT},
        "upstream_request_timeout_seconds": CALL_TIMEOUT,
        "upstream_ping": ping,
        "auth": {"signing_secret": "a-secret-that-all-replicas-of-a-run-have"},
    }
    if deployment.shape.workers > 1:
        core["workers"] = deployment.shape.workers
    storage: Json = {"root": str(deployment.disk.place / "data"), "orphan_sweeper_grace_seconds": 2}
    return {
        "core": core,
        "storage": storage,
        "state_persistence": state,
        "sessions": {"max_total_session_size": QUOTA},
        "uploads": {"ttl_seconds": TTL, "max_file_bytes": 1 << 20},
        "artifacts": {"ttl_seconds": TTL},
        "servers": [
            {"id": "upstream", "mount_path": MOUNT, **server},
            {"id": "pinned", "mount_path": PINNED, **server, "tool_definition_pinning": {"mode": "block"}},
        ],
    }


@asynccontextmanager
async def deployed(
    shape: Shape, place: Path, more: Callable[[Json], Json] = lambda settings: settings
) -> AsyncIterator[Deployment]:
    """A deployment of this shape, ready to serve, until the block ends; ``more`` may change the settings."""
    deployment = Deployment(shape, place, Disk(place / "disk"), Clocks(place), more)
    async with AsyncExitStack() as stack:
        await deployment.disk.mount()
        stack.push_async_callback(deployment.disk.release)
        await deployment.clocks.build()
        upstream = await _upstream(deployment, stack)
        redis = await _redis(deployment, stack) if shape.replicas > 1 else None
        for number in range(shape.replicas):
            await _replica(deployment, stack, number, upstream.port, redis)
        if shape.replicas > 1:
            await _nginx(deployment, stack)
        await deployment.ready()
        yield deployment


async def _upstream(deployment: Deployment, stack: AsyncExitStack) -> Node:
    port = free_port()

    def command() -> Sequence[str | Path]:
        module: list[str | Path] = ["-m", "tests.faults.upstream", str(port), deployment.journal]
        return [*deployment.disk.launcher, sys.executable, *module]

    return await _started(deployment.others, stack, Node("upstream", port, _log(deployment), command))


async def _redis(deployment: Deployment, stack: AsyncExitStack) -> Node:
    port, place = free_port(), deployment.place / "redis"
    place.mkdir()
    argv = redis_argv(port, place)
    return await _started(deployment.others, stack, Node("redis", port, _log(deployment), lambda: argv))


async def _replica(
    deployment: Deployment, stack: AsyncExitStack, number: int, upstream: int, redis: Node | None
) -> None:
    name, port = f"replica-{number + 1}", free_port()
    back = await _wire(deployment.backs, stack, f"{name} to upstream", upstream)
    state: dict[str, Any] = {"type": "disk"}
    if redis is not None:
        store = await _wire(deployment.backs, stack, f"{name} to redis", redis.port)
        state = {"type": "redis", "redis": {"host": "127.0.0.1", "port": store.port}}
    config = deployment.place / f"{name}.json"
    config.write_text(
        json.dumps(deployment.more(settings(deployment, port, back.port, state)))
    )  # JSON is YAML too

    def command() -> Sequence[str | Path]:
        serve: list[str | Path] = [
            sys.executable,
            "-m",
            "adapter",
            "serve",
            "--config",
            config,
            "--port",
            str(port),
        ]
        return [*deployment.disk.launcher, *serve]

    node = Node(name, port, _log(deployment, name), command, lambda: deployment.clocks.environment(name))
    await _started(deployment.adapters, stack, node)
    node.front = await _wire(deployment.fronts, stack, name, port)
    deployment.port = node.front.port


async def _nginx(deployment: Deployment, stack: AsyncExitStack) -> None:
    port, place = free_port(), deployment.place / "nginx"
    place.mkdir()
    argv = balancer_argv(place, port, [wire.port for wire in deployment.fronts.values()])
    node = Node("nginx", port, _log(deployment), lambda: argv)
    await node.start()
    stack.push_async_callback(node.stop)
    deployment.port = port


async def _started(group: list[Node], stack: AsyncExitStack, node: Node) -> Node:
    stack.push_async_callback(node.stop)
    await node.start()
    group.append(node)
    return node


async def _wire(group: dict[str, Wire], stack: AsyncExitStack, name: str, target: int) -> Wire:
    wire = group[name] = Wire(target)
    await wire.start()
    stack.push_async_callback(wire.stop)
    return wire


def _log(deployment: Deployment, name: str = "others") -> Path:
    return deployment.place / f"{name}.log"
