"""Servers over HTTP+SSE (MCP 2024-11-05), used by official clients through the adapter as they are directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import Adapter, listens, server, start
from tests.e2e.survey import PATIENCE, Survey, ToolUse, session_at, surveyed
from tests.e2e.test_clients import LEGACY, Command, command, opened
from tests.ports import free_port

pytestmark = pytest.mark.e2e

__all__ = ["command"]

PYTHON = "tests.e2e.sse_server"

USES = [
    ToolUse("echo", {"text": "häh"}),
    ToolUse("add", {"numbers": [1, 2]}),
    ToolUse("steps", {"count": 3}, reports=True),
    ToolUse("steps", {"count": 2}),
    ToolUse("fail", {}),
    ToolUse("echo", {"wrong": 1}),
]
EVERYTHING = [
    ToolUse("echo", {"message": "häh"}),
    ToolUse("get-sum", {"a": 1, "b": 2}),
    ToolUse("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ToolUse("get-tiny-image", {}),
    ToolUse("get-structured-content", {"location": "Chicago"}),
    ToolUse("get-resource-links", {"count": 3}),
    ToolUse("get-roots-list", {}),
    ToolUse("trigger-long-running-operation", {"duration": 0.2, "steps": 4}, reports=True),
    ToolUse("trigger-sampling-request", {"prompt": "p", "maxTokens": 5}),
    ToolUse("trigger-elicitation-request", {}),
    ToolUse("get-sum", {"a": "no"}),
]


@asynccontextmanager
async def adapter(place: Path, url: str, **sections: Any) -> AsyncIterator[Adapter]:
    """The adapter in front of an SSE server."""
    entry = {"id": "upstream", "mount_path": "/mcp", "upstream": {"transport": "sse", "url": url}}
    front = Adapter(place, {"storage": {"root": str(place / "data")}, "servers": [entry], **sections})
    try:
        await front.start()
        yield front
    finally:
        await front.stop()


@asynccontextmanager
async def everything(node: Path, installed: Path, place: Path) -> AsyncIterator[str]:
    """The URL of npm's server-everything over SSE."""
    script = installed / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    port = free_port()
    running = await start([node, script, "sse"], place / "everything.log", {"PORT": str(port)})
    try:
        await listens(port, running)
        yield f"http://127.0.0.1:{port}/sse"
    finally:
        await running.stop()


async def compared(url: str, place: Path, uses: list[ToolUse], hears: int) -> Survey:
    """Survey a server directly and through the adapter, and find the same; ``hears`` messages come by themselves."""
    direct = await surveyed(url, uses, sse=True, hears=hears)
    async with adapter(place, url) as front:
        through = await surveyed(front.url, uses, sse=False, hears=hears)
    for question, answer in direct.answers.items():
        assert through.answers[question] == answer, question
    assert through.answers.keys() == direct.answers.keys()
    assert through.heard == direct.heard
    return through


async def test_a_python_server_is_the_same_through_the_adapter(tmp_path: Path) -> None:
    """Lists, reads, prompts, calls, progress and refusals of the Python SDK's server, key by key."""
    async with server(PYTHON, tmp_path) as upstream:
        survey = await compared(upstream.url, tmp_path, USES, 6)
    assert survey.answers["call 0 echo"]["content"][0]["text"] == "you said häh"
    assert [each for each in survey.heard if "step 2" in each]


async def test_everything_is_the_same_through_the_adapter(
    node: Path, server_packages: Path, tmp_path: Path
) -> None:
    """The reference server of the TypeScript SDK, with what it asks its client for: roots, samples, questions."""
    async with everything(node, server_packages, tmp_path) as url:
        survey = await compared(url, tmp_path, EVERYTHING, 17)
    assert len(survey.answers) > 30 and any("roots/list" in each for each in survey.heard)


@pytest.mark.parametrize("name", [*LEGACY, "python_v2 auto", "ts_v2 auto", "fastmcp4"])
async def test_every_client_outlives_its_sse_server(name: str, command: Command, tmp_path: Path) -> None:
    """Clients of streamable HTTP list, call, read in time why calls fail, and go on when the server is back."""
    async with (
        server(PYTHON, tmp_path) as upstream,
        adapter(tmp_path, upstream.url) as front,
        opened(command, name, front.url, tmp_path) as client,
    ):
        assert (await client.answer())["ok"]
        assert "echo" in (await client.ask("list"))["text"]
        assert (await client.echo("one"))["text"] == "you said one"

        await client.say("call", tool="wait", arguments={"seconds": 60})
        assert upstream.running is not None
        assert await upstream.running.line(PATIENCE) == "waiting"
        await upstream.kill()
        cut_off = await client.answer()
        assert not cut_off["ok"] and "may" in cut_off["text"] and "have run" in cut_off["text"], cut_off

        refused = await client.echo("two")
        assert not refused["ok"] and "cannot be reached" in refused["text"], refused

        await upstream.start()
        assert (await client.echo("three"))["text"] == "you said three"


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    """A client that gives its call up is heard by the server, and calls on in the same session."""
    async with server(PYTHON, tmp_path) as upstream, adapter(tmp_path, upstream.url) as front:
        assert upstream.running is not None
        async with session_at(front.url, Survey(), sse=False) as session:
            calling = asyncio.create_task(session.call_tool("wait", {"seconds": 60}))
            assert await upstream.running.line(PATIENCE) == "waiting"
            calling.cancel()
            assert await upstream.running.line(PATIENCE) == "cancelled"
            result = await session.call_tool("echo", {"text": "still"})
            assert result.content[0].text == "you said still"  # type: ignore[union-attr]  # the text is what is meant
