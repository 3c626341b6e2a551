"""The features that the Python SDK 1.x finds: see ``features.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.e2e.clients.features import Heard, Progress, main

# By name: the project's own environment, which the type checker sees, holds another major version.
mcp: Any = import_module("mcp")
http: Any = import_module("mcp.client.streamable_http")
types: Any = import_module("mcp.types")


class Session:
    """A client of ``features.py``."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def tools(self) -> str:
        return " ".join(tool.name for tool in (await self._session.list_tools()).tools)

    async def call(self, tool: str, arguments: dict[str, Any], reported: Progress | None = None) -> str:
        async def report(value: float, _: float | None, __: str | None) -> None:
            if reported:
                reported(value)

        result = await self._session.call_tool(
            tool, arguments, progress_callback=report if reported else None
        )
        text: str = result.content[0].text
        return f"!{text}" if result.isError else text

    async def log(self, tool: str) -> str:
        await self._session.set_logging_level("info")
        return await self.call(tool, {})

    async def resource(self, uri: str) -> str:
        found: str = (await self._session.read_resource(types.AnyUrl(uri))).contents[0].model_dump_json()
        return found

    async def prompt(self, name: str) -> str:
        found: str = (await self._session.get_prompt(name)).messages[0].model_dump_json()
        return found

    async def listen(self, uri: str) -> None:
        await self._session.subscribe_resource(types.AnyUrl(uri))

    async def cancelled(self, tool: str, arguments: dict[str, Any]) -> None:
        runs = asyncio.Event()
        number = self._session._request_id  # it cancels nothing itself
        calling = asyncio.create_task(self.call(tool, arguments, lambda _: runs.set()))
        waiting = asyncio.create_task(runs.wait())
        await asyncio.wait([calling, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        params = types.CancelledNotificationParams(requestId=number)
        cancel = types.ClientNotification(types.CancelledNotification(params=params))
        await self._session.send_notification(cancel)
        calling.cancel()
        await asyncio.wait([calling])


async def _accept(_: Any, __: Any) -> Any:
    return types.ElicitResult(action="accept", content={"username": "Ada", "email": "ada@example.org"})


async def _sample(_: Any, __: Any) -> Any:
    content = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def _roots(_: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp/a", name="a")])


@asynccontextmanager
async def connect(url: str, _: str, heard: Heard) -> AsyncIterator[Session]:
    """Connects, and does for the server what a client can."""

    async def hear(message: Any) -> None:
        if method := getattr(getattr(message, "root", None), "method", None):
            heard(method)

    async with (
        http.streamable_http_client(url) as (read, write, *_rest),
        mcp.ClientSession(
            read,
            write,
            elicitation_callback=_accept,
            sampling_callback=_sample,
            list_roots_callback=_roots,
            message_handler=hear,
        ) as session,
    ):
        await session.initialize()
        yield Session(session)


if __name__ == "__main__":
    asyncio.run(main(connect))
