"""FastMCP's client, run with a Python that has it: ``-m tests.e2e.clients.fastmcp4 URL HEADERS``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.e2e.clients.conversation import Caller, converse

# By name: the project's own environment, which the type checker sees, does not hold it.
fastmcp: Any = import_module("fastmcp")
transports: Any = import_module("fastmcp.client.transports")


class Session:
    """A Caller over ``fastmcp.Client``, which raises the errors of tools itself."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def list(self) -> str:
        return " ".join(tool.name for tool in await self._client.list_tools())

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        text: str = (await self._client.call_tool(tool, arguments)).content[0].text
        return text


@asynccontextmanager
async def connect(url: str, headers: dict[str, str]) -> AsyncIterator[Caller]:
    """Connects as FastMCP does by default."""
    async with fastmcp.Client(transports.StreamableHttpTransport(url, headers=headers)) as client:
        yield Session(client)


if __name__ == "__main__":
    asyncio.run(converse(connect))
