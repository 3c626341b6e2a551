"""Hosted tools behind the real adapter: tools for tests, a running adapter, and the SDK's client in either era."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from adapter import log
from adapter.app import App, build, running
from adapter.hosted.server import HostedServer, HostedTool, Served, Work
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import CallRefused, ErrorStyle, Outcome
from adapter.pipeline.plan import ToolPlan
from adapter.settings.root import Settings
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import Upstream

LOG = log.get_logger("test")
ERAS = ("legacy", "2026-07-28")
"""The modes of the SDK's client that stand for one era each."""


def answer(content: Sequence[Mapping[str, Any]], *, is_error: bool = False, **members: Any) -> Outcome:
    """The CallToolResult of these content blocks and members."""
    return Outcome({"content": list(content), "isError": is_error, **members})


def text(words: str) -> Outcome:
    """An answer of one text."""
    return answer([{"type": "text", "text": words}])


def tool(name: str, run: Work, **more: Any) -> HostedTool:
    """A tool that takes anything, ``more`` joining its definition."""
    definition = {"name": name, "description": name, "inputSchema": {"type": "object"}, **more}
    return HostedTool("hosted", definition, run, ToolPlan(name, "script", (), ErrorStyle()), 60.0)


async def echo(call: PlannedCall) -> Outcome:
    """Says what it was given, also as an object."""
    said = str(call.arguments.get("text"))
    return answer([{"type": "text", "text": f"you said {said}"}], structuredContent={"said": said})


async def count(call: PlannedCall) -> Outcome:
    """Tells of its progress three times."""
    for percent in (0, 50, 100):
        await call.client.progress(percent, f"{percent} of 100")
    return text("counted")


async def fail(_: PlannedCall) -> Outcome:
    """Ends as no tool should."""
    raise RuntimeError("password=hunter2")


async def refuse(_: PlannedCall) -> Outcome:
    """Answers with a JSON-RPC error of its own."""
    raise CallRefused(-32000, "not today", {"why": "rain"})


@dataclass
class Waiting:
    """A tool that waits until it is let go, and notes what became of each of its calls."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    async def __call__(self, call: PlannedCall) -> Outcome:
        self.began.set()
        await call.client.progress(1, "waiting")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.ended.set()
        return text("waited")


def hosted(tools: Iterable[HostedTool], **more: Any) -> LocalUpstream[HostedServer]:
    """A hosted server of these tools, as the relay meets it."""
    return LocalUpstream(HostedServer(Served("hosted", "1.0", **more), tools, LOG))


TOOLS = (tool("echo", echo), tool("count", count), tool("fail", fail), tool("refuse", refuse))


@dataclass
class Front:
    """A running adapter with the hosted server at ``/mcp``."""

    app: App
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @contextlib.asynccontextmanager
    async def client(self, mode: str) -> AsyncIterator[Client]:
        """The SDK's client, connected."""
        async with (
            httpx2.AsyncClient(timeout=10) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, cache=None) as client,
        ):
            yield client


@contextlib.asynccontextmanager
async def front(upstream: Upstream, place: Path, **core: Any) -> AsyncIterator[Front]:
    """The adapter in front of ``upstream``, pings on, as long as the block lasts."""
    settings = {
        "core": {"port": 0, "shutdown_grace_seconds": 0, **core},
        "storage": {"root": str(place)},
        "servers": [
            {
                "id": "hosted",
                "mount_path": "/mcp",
                "upstream": {"url": "http://127.0.0.1:9/mcp", "bridge": "never"},
            }
        ],
    }
    app = build(Settings.model_validate(settings))
    app.servers["hosted"].upstream = upstream
    async with running(app) as (_, port):
        yield Front(app, port)
