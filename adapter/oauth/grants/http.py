"""The requests of grants to authorization servers, on aiohttp's client, which is loaded at the first of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapter.upstream.outgoing import OutgoingHttp

TIMEOUT = 10.0
"""Seconds of one request, connection and answer together."""

LARGEST = 1 << 18
"""Bytes of an answer: metadata and tokens have a few thousand."""


class GrantHttp:
    """Implements DocumentHttp. ``near`` is the host of the upstream that names the servers; None: the settings do."""

    def __init__(self, near: str | None) -> None:
        self._near = near
        self._client: OutgoingHttp | None = None

    async def get(self, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """See DocumentHttp."""
        return await (await self._loaded()).get(url, headers)

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """See DocumentHttp."""
        return await (await self._loaded()).post(url, body, headers)

    async def _loaded(self) -> OutgoingHttp:
        if self._client is None:
            # In a thread: to load the library and to read the certificates takes longer than a call may wait.
            self._client = await asyncio.to_thread(self._make)
        return self._client

    def _make(self) -> OutgoingHttp:
        from adapter.upstream.outgoing import OutgoingHttp

        return OutgoingHttp(timeout=TIMEOUT, limit=LARGEST, near=self._near)
