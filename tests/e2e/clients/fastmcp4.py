"""FastMCP's client, run with a Python that has it: ``-m tests.e2e.clients.fastmcp4 URL HEADERS``."""

from __future__ import annotations

import asyncio
import os
import warnings
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from threading import Thread
from typing import Any

from tests.e2e.clients.browser import Browser
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


class SystemBrowser(webbrowser.BaseBrowser):
    """The browser that FastMCP finds on this system: the one of a person who signs in."""

    def __init__(self, person: str) -> None:
        super().__init__()
        self._person = person

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        # In a thread, because FastMCP listens for the answer only when this returns.
        Thread(target=Browser(self._person).visit, args=(url,), daemon=True).start()
        return True


def authentication() -> str | None:
    """Let FastMCP sign in the person of ``SIGN_IN_AS``; nobody without it."""
    if (person := os.environ.get("SIGN_IN_AS")) is None:
        return None
    warnings.filterwarnings("ignore", message="Using in-memory token storage")
    webbrowser.register("test", None, SystemBrowser(person), preferred=True)
    return "oauth"


@asynccontextmanager
async def connect(url: str, headers: dict[str, str]) -> AsyncIterator[Caller]:
    """Connects as FastMCP does by default."""
    transport = transports.StreamableHttpTransport(url, headers=headers, auth=authentication())
    async with fastmcp.Client(transport) as client:
        yield Session(client)


if __name__ == "__main__":
    asyncio.run(converse(connect))
