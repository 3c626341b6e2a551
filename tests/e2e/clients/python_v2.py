"""The Python SDK 2.x: ``-m tests.e2e.clients.python_v2 URL HEADERS [auto|legacy|2026-07-28]``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

# The SDK loads it with the first call of a tool, for a second or more where all of its formats are installed.
import jsonschema  # noqa: F401
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.e2e.clients.conversation import Caller, converse
from tests.e2e.clients.sign_in import provider


class Session:
    """A Caller over ``mcp.Client``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> str:
        return " ".join(tool.name for tool in (await self._client.list_tools()).tools)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        result = await self._client.call_tool(tool, arguments)
        block = result.content[0]
        text = block.text if isinstance(block, TextContent) else repr(block)
        if result.is_error:
            raise RuntimeError(text)
        return text


@asynccontextmanager
async def connect(url: str, headers: dict[str, str]) -> AsyncIterator[Caller]:
    """Connects in the mode of the third argument, by default as the server prefers."""
    mode = sys.argv[3] if len(sys.argv) > 3 else "auto"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, auth=provider(url, result=True)) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Session(client)


if __name__ == "__main__":
    asyncio.run(converse(connect))
