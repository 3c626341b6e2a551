"""The Python SDK 2.x in a host that loses each session id: ``-m tests.e2e.clients.python_v2_dropping URL HEADERS``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.clients.conversation import Caller, converse
from tests.e2e.clients.python_v2 import Session


async def lose_id(response: httpx2.Response) -> None:
    """Let the SDK see no id, so that it sends none."""
    response.headers.pop("mcp-session-id", None)


@asynccontextmanager
async def connect(url: str, headers: dict[str, str]) -> AsyncIterator[Caller]:
    """Connects in the legacy era, which alone has ids."""
    hooks = {"response": [lose_id]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, event_hooks=hooks) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        yield Session(client)


if __name__ == "__main__":
    asyncio.run(converse(connect))
