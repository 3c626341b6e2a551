"""The features that FastMCP's client finds, run with a Python that has it: see ``features.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any

from tests.e2e.clients.features import Heard, Progress, main

# By name: the project's own environment, which the type checker sees, does not hold it.
fastmcp: Any = import_module("fastmcp")
elicitation: Any = import_module("fastmcp.client.elicitation")
subscriptions: Any = import_module("mcp.client.subscriptions")

MODERN = "2026-07-28"


class Session:
    """A client of ``features.py``."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._modern = (client.protocol_version or "") >= MODERN

    async def tools(self) -> str:
        return " ".join(tool.name for tool in await self._client.list_tools())

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        reported: Progress | None = None,
        meta: dict[str, Any] | None = None,
    ) -> str:
        async def report(progress: float, _: float | None, __: str | None) -> None:
            if reported:
                reported(progress)

        result = await self._client.call_tool(tool, arguments, progress_handler=report, meta=meta)
        text: str = result.content[0].text
        return text

    async def log(self, tool: str) -> str:
        if self._modern:
            return await self.call(tool, {}, meta={"io.modelcontextprotocol/logLevel": "info"})
        await self._client.set_logging_level("info")
        return await self.call(tool, {})

    async def resource(self, uri: str) -> str:
        text: str = (await self._client.read_resource(uri))[0].text
        return text

    async def prompt(self, name: str) -> str:
        text: str = (await self._client.get_prompt(name)).messages[0].content.text
        return text

    async def listen(self, uri: str) -> AbstractAsyncContextManager[Any] | None:
        # It has no way of its own.
        session = self._client.session
        if self._modern:
            listening: AbstractAsyncContextManager[Any] = subscriptions.listen(
                session, tools_list_changed=True, resource_subscriptions=[uri]
            )
            return listening
        await session.subscribe_resource(uri)
        return None

    async def cancelled(self, tool: str, arguments: dict[str, Any]) -> None:
        runs = asyncio.Event()
        calling = asyncio.create_task(self.call(tool, arguments, lambda _: runs.set()))
        waiting = asyncio.create_task(runs.wait())
        await asyncio.wait([calling, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        calling.cancel()
        await asyncio.wait([calling])


async def _accept(*_: Any) -> Any:
    content = {"username": "Ada", "email": "ada@example.org"}
    return elicitation.ElicitResult(action="accept", content=content)


async def _sample(*_: Any) -> str:
    return "sampled"


@asynccontextmanager
async def connect(url: str, mode: str, heard: Heard) -> AsyncIterator[Session]:
    """Connects, and does for the server what a client can."""

    async def hear(message: Any) -> None:
        if method := getattr(message, "method", None):
            heard(method)

    async def log(_: Any) -> None:
        heard("notifications/message")

    async with fastmcp.Client(
        url,
        mode=mode or "auto",
        roots=["file:///tmp/a"],
        sampling_handler=_sample,
        elicitation_handler=_accept,
        log_handler=log,
        message_handler=hear,
    ) as client:
        yield Session(client)


if __name__ == "__main__":
    asyncio.run(main(connect))
