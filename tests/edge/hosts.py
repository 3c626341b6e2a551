"""Hosts that embed the tool API: an aiohttp application on a real socket, and what a client of it reads."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientResponse, ClientSession, web


class Host:
    """A host being served at ``url``."""

    def __init__(self, url: str, session: ClientSession) -> None:
        self.url = url
        self.session = session

    async def get(self, path: str, **fields: str) -> tuple[ClientResponse, Any]:
        """The answer, and its JSON."""
        async with self.session.get(self.url + path, headers=fields) as response:
            return response, await response.json()

    async def call(self, name: str, body: bytes = b"{}", /, **fields: str) -> tuple[ClientResponse, Any]:
        """The answer to ``POST /tools/{name}/call``, and its JSON."""
        return await self.post(f"/tools/{name}/call", body, **fields)

    async def post(self, path: str, body: bytes = b"{}", /, **fields: str) -> tuple[ClientResponse, Any]:
        """The answer, and its JSON."""
        headers = {"Content-Type": "application/json"} | fields
        async with self.session.post(self.url + path, data=body, headers=headers) as response:
            return response, await response.json()


@contextlib.asynccontextmanager
async def hosting(app: web.Application, path: str = "") -> AsyncIterator[Host]:
    """The application on a port, asked below ``path``."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with ClientSession() as session:
            yield Host(f"http://127.0.0.1:{port}{path}", session)
    finally:
        await runner.cleanup()
