"""The features that the Python SDK 2.x finds: see ``features.py``."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import FileUrl

from tests.e2e.clients.features import Heard, Progress, main

MODERN = "2026-07-28"
WANTS_LOG = cast("types.RequestParamsMeta", {"io.modelcontextprotocol/logLevel": "info"})


class Session:
    """A client of ``features.py``."""

    def __init__(self, client: Client, heard: Heard) -> None:
        self._client = client
        self._heard = heard
        self._modern = client.protocol_version >= MODERN

    async def tools(self) -> str:
        return " ".join(tool.name for tool in (await self._client.list_tools()).tools)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        reported: Progress | None = None,
        meta: types.RequestParamsMeta | None = None,
    ) -> str:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            if reported:
                reported(progress)

        result = await self._client.call_tool(
            tool, arguments, progress_callback=report if reported else None, meta=meta
        )
        block = result.content[0]
        text = block.text if isinstance(block, types.TextContent) else repr(block)
        return f"!{text}" if result.is_error else text

    async def log(self, tool: str) -> str:
        if self._modern:
            return await self.call(tool, {}, meta=WANTS_LOG)
        await self._client.set_logging_level("info")
        return await self.call(tool, {})

    async def resource(self, uri: str) -> str:
        return (await self._client.read_resource(uri)).contents[0].model_dump_json()

    async def prompt(self, name: str) -> str:
        return (await self._client.get_prompt(name)).messages[0].model_dump_json()

    async def listen(self, uri: str) -> AbstractAsyncContextManager[Any] | None:
        if self._modern:
            # What it hears comes to the handler of messages too.
            return self._client.listen(tools_list_changed=True, resource_subscriptions=[uri])
        await self._client.subscribe_resource(uri)
        return None

    async def cancelled(self, tool: str, arguments: dict[str, Any]) -> None:
        runs = asyncio.Event()
        calling = asyncio.create_task(self.call(tool, arguments, lambda _: runs.set()))
        await asyncio.wait(
            [calling, waiting := asyncio.create_task(runs.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()
        calling.cancel()
        await asyncio.wait([calling])


async def _accept(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": "Ada", "email": "ada@example.org"})


async def _sample(context: Any, params: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def _roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///tmp/a"), name="a")])


@asynccontextmanager
async def connect(url: str, mode: str, heard: Heard) -> AsyncIterator[Session]:
    """Connects, and does for the server what a client can."""

    async def hear(message: Any) -> None:
        if method := getattr(message, "method", None):
            heard(method)

    async def log(params: Any) -> None:
        heard("notifications/message")

    async with Client(
        url,
        mode=mode,
        cache=None,
        elicitation_callback=_accept,
        sampling_callback=_sample,
        list_roots_callback=_roots,
        logging_callback=log,
        message_handler=hear,
    ) as client:
        yield Session(client, heard)


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(main(connect))
