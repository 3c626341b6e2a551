"""A listener that notes what it is told, and waits for it."""

from __future__ import annotations

import asyncio
import secrets

from adapter.errors import StoreUnavailable
from adapter.state.port import Store


class Ear:
    """Notes rows that changed, announcements, and how often rows became unknown."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.unknown = 0
        self.said: list[tuple[str, bytes]] = []
        self._event = asyncio.Event()

    def row_changed(self, table: str, key: str) -> None:
        self.rows.append((table, key))
        self._event.set()

    def rows_unknown(self) -> None:
        self.unknown += 1
        self._event.set()

    def announced(self, topic: str, body: bytes) -> None:
        self.said.append((topic, body))
        self._event.set()

    async def changed(self) -> None:
        """Wait for the next word."""
        self._event.clear()
        await self._event.wait()

    async def until_hearing(self, other: Store) -> None:
        """Wait until a change that ``other`` makes is heard; the other one is closed then."""
        async with asyncio.timeout(10):
            while True:
                key = secrets.token_hex(8)
                try:
                    await other.open()
                    await other.put("hearing", key, b"")
                    async with asyncio.timeout(0.2):
                        while ("hearing", key) not in self.rows:
                            await self.changed()
                except (StoreUnavailable, TimeoutError):
                    continue
                break
        await other.close()
