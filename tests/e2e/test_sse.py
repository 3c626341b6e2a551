"""Servers over HTTP+SSE (MCP 2024-11-05), used by official clients through the adapter as they are directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp.client.client import Client

from tests.e2e.processes import Server, adapter, listens, start
from tests.e2e.talk import PATIENCE, Command, opened
from tests.ports import free_port

pytestmark = pytest.mark.e2e


PYTHON = "tests.e2e.sse_server"


def over_sse(url: str) -> dict[str, str]:
    """Settings of an upstream of that kind."""
    return {"transport": "sse", "url": url}


@asynccontextmanager
async def everything(node: Path, installed: Path, place: Path) -> AsyncIterator[str]:
    """The URL of npm's server-everything over SSE."""
    script = installed / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    port = free_port()
    async with await start([node, script, "sse"], place / "everything.log", {"PORT": str(port)}) as running:
        await listens(port, running)
        yield f"http://127.0.0.1:{port}/sse"


@pytest.mark.parametrize("name", ["ts_v1", "python_v2 auto"])
async def test_clients_outlive_their_sse_server(name: str, command: Command, tmp_path: Path) -> None:
    """Clients of streamable HTTP list, call, read in time why calls fail, and go on when the server is back."""
    async with (
        Server(PYTHON, tmp_path) as upstream,
        adapter(tmp_path, over_sse(upstream.url)) as front,
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
    async with Server(PYTHON, tmp_path) as upstream, adapter(tmp_path, over_sse(upstream.url)) as front:
        assert upstream.running is not None
        async with Client(front.url, mode="legacy") as client:
            calling = asyncio.create_task(client.call_tool("wait", {"seconds": 60}))
            assert await upstream.running.line(PATIENCE) == "waiting"
            calling.cancel()
            assert await upstream.running.line(PATIENCE) == "cancelled"
            result = await client.call_tool("echo", {"text": "still"})
            assert result.content[0].text == "you said still"  # type: ignore[union-attr]  # the text is what is meant
