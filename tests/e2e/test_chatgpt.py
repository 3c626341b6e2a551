"""Files of a conversation in ChatGPT reach tools, and come back: a simulator, whole processes, a store over https."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.types import CallToolResult, TextContent

from tests.e2e.chatgpt import ChatGPT
from tests.e2e.filing import ADAPTERS
from tests.e2e.processes import Server, adapter
from tests.edge.attaching import FileHost

pytestmark = pytest.mark.e2e

Mode = Literal["legacy", "auto"]
MODES: tuple[Mode, ...] = ("legacy", "auto")
OWNED = {"scope": "principal"}
LONG = random.Random(4).randbytes(3_000_000)


@asynccontextmanager
async def talking(place: Path, depot: FileHost, mode: Mode, **hosts: Any) -> AsyncIterator[ChatGPT]:
    """The host in front of an adapter and a server of files. What a tool wrote outlives the session of its call."""
    entry = {"hosts": {"file_url_allow": [depot.authority], **hosts}}
    core = {"allow_artifacts_download": True}
    async with (
        Server("tests.e2e.files_server", place) as upstream,
        adapter(place, upstream.url, adapters=ADAPTERS, entry=entry, core=core, sessions=OWNED) as front,
    ):
        yield ChatGPT(front.url, depot, mode)


def said(result: CallToolResult) -> str:
    assert not result.is_error, result
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


def digest(content: bytes, name: str) -> str:
    return f"{hashlib.sha256(content).hexdigest()} {len(content)} {name}"


@pytest.mark.parametrize("mode", MODES)
async def test_attached_files_reach_their_tools(tmp_path: Path, depot: FileHost, mode: Mode) -> None:
    """One, several, and one that goes on in base64; under their names, though each call is a session of its own."""
    async with talking(tmp_path, depot, mode) as host:
        host.files |= {"größe.bin": LONG, "b.txt": b"hello"}
        tools = await host.tools()
        assert said(await host.call(tools["digest"], path="größe.bin")) == digest(LONG, "größe.bin")
        both = await host.call(tools["digests"], paths=["b.txt", "größe.bin"])
        assert said(both).splitlines() == [digest(b"hello", "b.txt"), digest(LONG, "größe.bin")]
        inline = await host.call(tools["digest_inline"], data="b.txt")
        assert said(inline) == digest(b"hello", "").rstrip()
        assert len(depot.asked) == 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_file_that_a_tool_wrote_is_one_of_the_conversation(
    tmp_path: Path, depot: FileHost, mode: Mode
) -> None:
    """It comes back as a file reference, and the next tool takes it as any other."""
    async with talking(tmp_path, depot, mode) as host:
        host.files["a.bin"] = LONG
        tools = await host.tools()
        (name,) = await host.receive(await host.call(tools["turn_round"], path="a.bin", filename="b.bin"))
        assert (name, host.files[name]) == ("b.bin", LONG[::-1])
        assert said(await host.call(tools["digest"], path=name)) == digest(LONG[::-1], "b.bin")
