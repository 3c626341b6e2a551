"""Tools that ask their user before they move files, behind the official SDK on both sides (MCP 2026-07-28)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.filing import CALL_TIMEOUT, PythonHost, artifact, content_of, said, sha256, uploaded
from tests.e2e.processes import Adapter, Server, adapter

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.asking_server"
MODERN = "2026-07-28"
ADAPTERS: tuple[dict[str, Any], ...] = (
    {"type": "artifact_producer", "tools": ["paint", "convert"], "output_path_argument": "filename"},
    {"type": "upload_consumer", "tools": ["digest", "convert"], "file_path_argument": "path"},
    {"type": "upload_consumer", "tools": ["fetch"], "file_path_argument": "url", "delivery": "url"},
)

Meanwhile = Callable[[], Awaitable[None]]


class User:
    """Answers what is asked, and does something else first. ``asked`` are the questions so far."""

    def __init__(self, meanwhile: Meanwhile) -> None:
        self.asked: list[str] = []
        self._meanwhile = meanwhile

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        del context
        self.asked.append(params.message)
        await self._meanwhile()
        answers = {"title": "Sky", "colour": "blue"}
        (wanted,) = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={wanted: answers[wanted]})


@asynccontextmanager
async def host_of(front: Adapter, user: User) -> AsyncIterator[PythonHost]:
    """The SDK's client with a user behind it."""
    async with (
        httpx2.AsyncClient(timeout=CALL_TIMEOUT) as http,
        Client(
            streamable_http_client(front.url, http_client=http),
            mode=MODERN,
            cache=None,
            elicitation_callback=user,
        ) as client,
    ):
        yield PythonHost(client)


QUESTIONS = ["Which title?", "Which colour for Sky?"]


async def goes_all_the_way(host: PythonHost, user: User, place: Path) -> None:
    """Each kind of tool is called and asks twice, so that it takes three rounds."""
    note = place / "note.txt"
    note.write_text("hello")
    (upload,) = await uploaded(host, note)
    handle = upload["upload_handle"]

    painted = artifact(await host.call("paint", seed=1, filename="sky.txt"))
    assert painted["filename"] == "sky.txt"
    assert content_of(await host.read(painted["artifact_uri"])) == b"1 Sky blue"
    assert said(await host.call("digest", path=handle)) == f"{sha256(b'hello')} blue"
    assert said(await host.call("fetch", url=handle)) == f"{hashlib.sha256(b'hello').hexdigest()} blue"
    converted = artifact(await host.call("convert", path=handle, filename="loud.txt"))
    assert content_of(await host.read(converted["artifact_uri"])) == b"HELLO Sky blue"
    assert user.asked == QUESTIONS * 4


@pytest.mark.parametrize("killed", [False, True], ids=["untouched", "killed"])
async def test_tools_that_ask_move_files_like_others(tmp_path: Path, killed: bool) -> None:
    """In three rounds: a file written where the tool was told, a file read by path and by link, and both in one; also
    where the adapter is killed while the second question is answered, and started anew."""

    async def meanwhile() -> None:
        if killed and user.asked[-1] != QUESTIONS[0]:
            await front.kill()
            await front.start()

    user = User(meanwhile)
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS) as front,
        host_of(front, user) as host,
    ):
        await goes_all_the_way(host, user, tmp_path)
        # What was captured, and nothing of the rounds before.
        assert killed or len(list((tmp_path / "data").glob("artifacts/*/*"))) == 2
