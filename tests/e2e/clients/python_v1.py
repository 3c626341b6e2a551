"""The Python SDK 1.x, run with a Python that has it: ``-m tests.e2e.clients.python_v1 URL HEADERS``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.e2e.clients.conversation import Caller, converse
from tests.e2e.clients.sign_in import provider

# By name: the project's own environment, which the type checker sees, holds another major version.
mcp: Any = import_module("mcp")
http: Any = import_module("mcp.client.streamable_http")
httpx: Any = import_module("httpx")


class Session:
    """A Caller over ``mcp.ClientSession``."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def list(self) -> str:
        return " ".join(tool.name for tool in (await self._session.list_tools()).tools)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        result = await self._session.call_tool(tool, arguments)
        text: str = result.content[0].text
        if result.isError:
            raise RuntimeError(text)
        return text


@asynccontextmanager
async def connect(url: str, headers: dict[str, str]) -> AsyncIterator[Caller]:
    """Initializes a session over streamable HTTP."""
    async with (
        httpx.AsyncClient(headers=headers, timeout=30, auth=provider(url, result=False)) as client,
        http.streamable_http_client(url, http_client=client) as (read, write, _),
        mcp.ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield Session(session)


if __name__ == "__main__":
    asyncio.run(converse(connect))
