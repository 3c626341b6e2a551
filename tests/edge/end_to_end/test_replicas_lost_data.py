"""Replicas whose Redis loses its data: it comes back empty, is emptied, or another one is at its address."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.app import App, build, running
from adapter.settings.root import Settings
from tests.edge.conftest import StartUpstream
from tests.edge.file_tools import DOWNLOADS, TOOLS, link_of, playing, text_of, upload
from tests.edge.file_tools import call as call_tool
from tests.edge.raw import RawClient, RawUpstream, call_body
from tests.edge.replicating import PATIENCE, messages, tool
from tests.hosted.databases import URL_PASSWORD, Server
from tests.state.redis.servers import command
from tests.upstream.stdio.scripted import SERVER
from tests.waiting import until

pytestmark = pytest.mark.deep

CHILD = "/child"


def restarted_empty(redis: Server) -> None:
    """Kill it, and start it without what it has written."""
    redis.signal(signal.SIGKILL)
    redis.stop()
    shutil.rmtree(redis.folder / "appendonlydir")
    redis.start()


def emptied(redis: Server) -> None:
    """Delete everything, while its connections stay."""
    command(redis, "FLUSHALL")


LOSSES = [restarted_empty, emptied]


class Fleet:
    """Replicas by name, with the server ``raw`` over HTTP and ``child``, which is a process."""

    def __init__(self, place: Path, up: RawUpstream, redis: Server) -> None:
        self.apps: dict[str, App] = {}
        self.ports: dict[str, int] = {}
        self._place = place
        self._up = up
        self._redis = redis
        self._stops: dict[str, contextlib.AsyncExitStack] = {}

    async def start(self, name: str) -> None:
        app = build(Settings.model_validate(self._settings(name)))
        stack = self._stops[name] = contextlib.AsyncExitStack()
        _, self.ports[name] = await stack.enter_async_context(running(app))
        self.apps[name] = app

    async def restart(self, name: str) -> None:
        await self._stops.pop(name).aclose()
        await self.start(name)

    async def stop(self) -> None:
        for stack in self._stops.values():
            await stack.aclose()

    @contextlib.asynccontextmanager
    async def client(self, name: str, session: str | None = None) -> AsyncIterator[RawClient]:
        async with RawClient(self.ports[name]) as client:
            client.session = session
            yield client

    async def initialize(self, name: str, path: str = "/mcp") -> str:
        async with self.client(name) as client:
            return (await client.initialize(path=path))["mcp-session-id"]

    async def status(self, name: str, session: str, method: str = "POST") -> int:
        async with self.client(name, session) as client:
            return (await client.request(method, call_body() if method == "POST" else b""))[0].status

    async def who(self, name: str, session: str) -> int:
        """The process that serves a session of ``child``."""
        async with self.client(name, session) as client, asyncio.timeout(PATIENCE):
            _, body = await client.request("POST", tool("who"), CHILD)
            return int(messages(body)[-1]["result"]["pid"])

    @property
    def processes(self) -> int:
        """The processes of ``child`` that all of them have."""
        uses = [app.servers["child"].process_use() for app in self.apps.values()]
        return sum(use.running for use in uses if use is not None)

    async def health(self, name: str) -> Any:
        async with self.client(name) as client:
            return orjson.loads((await client.request("GET", path="/healthz"))[1])

    async def together(self) -> None:
        """Wait until each of them sees all others."""
        for name in self.ports:
            await until(partial(self._sees_all, name))

    async def _sees_all(self, name: str) -> bool:
        """Also where each is now: one that was started again has another port."""
        seen = {each["address"] for each in (await self.health(name))["replica"]["others"]}
        return seen == {f"http://127.0.0.1:{port}" for other, port in self.ports.items() if other != name}

    async def has_told(self, name: str) -> bool:
        """Tell whether its health says that the data was lost, once."""
        lost = (await self.health(name))["persistence"].get("data_lost")
        return lost is not None and lost["times"] == 1

    def _settings(self, name: str) -> dict[str, Any]:
        url = f"redis://:{URL_PASSWORD}@127.0.0.1:{self._redis.port}/0"
        state = {"type": "redis", "cache_seconds": 0.5, "redis": {"url": url}}
        child = {"transport": "stdio", "command": sys.executable, "args": ["-S", "-c", SERVER]}
        return {
            "core": {
                "port": 0,
                "shutdown_grace_seconds": 0,
                "upstream_ping": {"enabled": False},
                "tool_definition_pinning": {"mode": "off"},
                "replica": {"id": name},
                "cleanup_interval_seconds": 1,
                **DOWNLOADS,
            },
            "storage": {"root": str(self._place / "files")},
            "state_persistence": state,
            "servers": [
                {"id": "raw", "mount_path": "/mcp", "upstream": {"url": self._up.url}, **TOOLS},
                {"id": "child", "mount_path": CHILD, "upstream": child},
            ],
        }


@contextlib.asynccontextmanager
async def fleet(place: Path, up: RawUpstream, redis: Server) -> AsyncIterator[Fleet]:
    """The replicas a, b and c."""
    found = Fleet(place, up, redis)
    try:
        for name in "abc":
            await found.start(name)
        await found.together()
        yield found
    finally:
        await found.stop()


def desk(arguments: dict[str, Any]) -> str:
    """A tool that writes where it is told, or reads there."""
    if "filename" in arguments:
        Path(arguments["filename"]).write_bytes(b"made")
        return f"Saved to {arguments['filename']}."
    return Path(arguments["path"]).read_text()


@pytest.mark.parametrize("lose", LOSSES)
async def test_replicas_agree_again(
    upstream: StartUpstream, tmp_path: Path, own_redis: Server, lose: Callable[[Server], None]
) -> None:
    """Also with one that began after the loss: handles, links and sessions of processes of each count at all others."""
    async with upstream(playing(desk)) as up, fleet(tmp_path, up, own_redis) as found:
        lose(own_redis)
        for name in "abc":
            await until(partial(found.has_told, name))
        await found.together()
        await found.restart("c")
        await found.together()
        for one, other in permutations("abc", 2):
            session = await found.initialize(one)
            async with found.client(one, session) as here, found.client(other, session) as there:
                status, answer = await upload(here, b"brought")
                assert status == 200, answer
                read = await call_tool(there, "read", {"path": answer["upload_handles"][0]})
                assert text_of(read) == "brought"
                link = link_of(await call_tool(there, "write", {"filename": "made.txt"}))
                head, body = await here.request("GET", path=link)
                assert (head.status, body) == (200, b"made")
            session, before = await found.initialize(one, CHILD), found.processes
            first = await found.who(one, session)
            assert [await found.who(other, session) for _ in range(3)] == [first] * 3
            assert found.processes == before
