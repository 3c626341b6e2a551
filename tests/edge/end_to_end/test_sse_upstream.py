"""The whole adapter in front of a server over HTTP+SSE: the relay finds in it what it finds in any upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.edge.conftest import Adapter, start_adapter
from tests.edge.raw import call_body, initialize_result, result
from tests.upstream.sse.scripted_server import Post, SseSite, Stream, sse_site

TOOLS = {
    "tools": [{"name": "read", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}}]
}


class Player:
    """Plays an SSE server: every session has an endpoint of its own, and each call is answered but ``wait``."""

    def __init__(self, site: SseSite) -> None:
        self.site = site
        self.streams: list[Stream] = []
        self.waiting: asyncio.Queue[Post] = asyncio.Queue()

    async def play(self) -> None:
        """Open streams and answer messages, until cancelled."""
        await asyncio.gather(self._open(), self._answer())

    async def _open(self) -> None:
        while True:
            stream = await self.site.streams.get()
            self.streams.append(stream)
            await stream.opens(f"/messages/{len(self.streams) - 1}")

    async def _answer(self) -> None:
        while True:
            post = await self.site.posts.get()
            stream = self.streams[int(post.target.rsplit("/", 1)[1])]
            number, method = post.message.get("id"), post.message.get("method")
            if method == "initialize":
                await stream.says(initialize_result(number, "2024-11-05"))
            elif method == "tools/list":
                await stream.says(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": TOOLS}))
            elif method == "tools/call" and post.message["params"]["name"] == "wait":
                self.waiting.put_nowait(post)
            elif number is not None:
                await stream.says(result(number))

    def methods(self, stream: int) -> list[str]:
        """The methods of what was posted to the endpoint of a stream, in order."""
        return [post.message["method"] for post in self.site.posted if post.target == f"/messages/{stream}"]


@asynccontextmanager
async def playing() -> AsyncIterator[Player]:
    async with sse_site() as site:
        player = Player(site)
        task = asyncio.create_task(player.play())
        try:
            yield player
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def adapter(
    place: Path, player: Player, upstream: dict[str, Any] | None = None, **entry: Any
) -> AbstractAsyncContextManager[Adapter]:
    """The adapter in front of the player, pings off."""
    transport = {"transport": "sse", **(upstream or {})}
    return start_adapter(place, player.site, server={"upstream": transport, **entry})


def fields(head: str) -> dict[str, str]:
    return {
        name.lower(): value
        for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:])
        if name
    }


async def test_the_fields_that_cross_are_those_of_any_upstream(tmp_path: Path) -> None:
    """Static and allowed fields are on the GET and on every POST, and nothing else of the client's."""
    upstream = {"static_headers": {"X-Key": "k"}, "client_headers": {"passthrough": ["X-Tenant"]}}
    async with playing() as player, adapter(tmp_path, player, upstream) as front, front.client() as client:
        own = {"x_tenant": "t", "authorization": "Bearer own", "cookie": "a=b"}
        await client.initialize(**own)
        head, body = await client.request("POST", call_body(), mcp_protocol_version="2024-11-05", **own)
        assert (head.status, body) == (200, result(1))
        heads = [player.streams[0].head, *(post.head for post in player.site.posted)]
        for each in heads:
            found = fields(each)
            assert (found["x-key"], found["x-tenant"]) == ("k", "t")
            assert not {"authorization", "cookie", "mcp-session-id"} & set(found)
        assert len(heads) == 3


async def test_lists_are_edited_on_the_way(tmp_path: Path) -> None:
    """A consumer's upload helper is among the tools, as it is for any upstream."""
    consumer = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
    async with (
        playing() as player,
        adapter(tmp_path, player, adapters=[consumer]) as front,
        front.client() as client,
    ):
        await client.initialize()
        asked = b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}'
        _, body = await client.request("POST", asked)
        names = [tool["name"] for tool in orjson.loads(body)["result"]["tools"]]
        assert sorted(names) == ["raw_get_upload_url", "raw_upload_status", "read"]
