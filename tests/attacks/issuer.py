"""An issuer of tokens on a socket, which counts how often it is asked and answers as an attack has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.edge.raw import Exchange, RawUpstream
from tests.oauth.token_serving import nobody

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Issuer(RawUpstream):
    """``document`` is served at ``url``; ``says`` answers instead of it, byte by byte. ``asked`` are targets."""

    script: Callable[[Exchange], Awaitable[None]] = nobody
    document: bytes = b""
    says: Script | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where the keys are."""
        return f"http://127.0.0.1:{self.port}/keys"

    async def _answer(self, exchange: Exchange) -> None:
        self.asked.append(exchange.head.first.split()[1])
        if self.says is not None:
            await self.says(exchange.writer)
        else:
            await answer(exchange.writer, self.document)
        exchange.hang_up()


async def answer(writer: asyncio.StreamWriter, document: bytes) -> None:
    """A whole answer with that document."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(document)}\r\n\r\n"
    writer.write(head.encode() + document)
    await writer.drain()
