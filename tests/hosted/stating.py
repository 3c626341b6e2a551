"""Bound statements and open connectors for tests, in as few words as a test wants to read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import Connector, Rows
from adapter.rules.calls.inputs import Scalar
from adapter.rules.statements.statements import Bound
from tests.hosted.databases import Server


@dataclass(frozen=True)
class Asking:
    """A connector, asked in one line."""

    connector: Connector

    async def sql(self, text: str, *values: Scalar, timeout: float = 10, max_rows: int = 1000) -> Rows:
        statement = Bound(text, values)
        return await self.connector.run(statement, timeout=timeout, max_rows=max_rows)

    async def redis(self, *argv: str, timeout: float = 10, max_rows: int = 1000) -> Rows:
        statement = Bound(" ".join(argv), (), argv=argv)
        return await self.connector.run(statement, timeout=timeout, max_rows=max_rows)

    async def ask(self, text: str, *values: Scalar, timeout: float = 10) -> Rows:
        """Send the words of ``text`` to a server of words, and all of it to the others."""
        if self.connector.kind == "redis":
            return await self.redis(*text.split(), *map(str, values), timeout=timeout)
        return await self.sql(text, *values, timeout=timeout)

    async def mongodb(
        self,
        command: Mapping[str, Any],
        *,
        database: str | None = "app",
        timeout: float = 10,
        max_rows: int = 1000,
    ) -> Rows:
        statement = Bound("", (), document={"database": database, "command": command})
        return await self.connector.run(statement, timeout=timeout, max_rows=max_rows)


@asynccontextmanager
async def opened(server: Server, **options: Any) -> AsyncIterator[Asking]:
    """A connector to ``server``, closed at the end."""
    async with opened_at(server.kind, server.url, **options) as asking:
        yield asking


@asynccontextmanager
async def opened_at(kind: str, connection_string: str, **options: Any) -> AsyncIterator[Asking]:
    connector = connector_for(kind, "main", connection_string, options)
    await connector.open()
    try:
        yield Asking(connector)
    finally:
        await connector.close()
