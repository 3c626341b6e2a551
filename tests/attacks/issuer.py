"""An issuer of tokens on a socket, which counts how often it is asked and answers as an attack has it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.edge.raw import read_head

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Issuer:
    """``document`` is served at ``url``; a ``script`` answers instead of it, byte by byte. ``asked`` are targets."""

    document: bytes = b""
    script: Script | None = None
    port: int = 0
    asked: list[str] = field(default_factory=list)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where the keys are."""
        return f"http://127.0.0.1:{self.port}/keys"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await read_head(reader)
            self.asked.append(head.first.split()[1])
            if self.script is not None:
                await self.script(writer)
            else:
                await answer(writer, self.document)
        self.writers.discard(writer)
        writer.close()


async def answer(writer: asyncio.StreamWriter, document: bytes) -> None:
    """A whole answer with that document."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(document)}\r\n\r\n"
    writer.write(head.encode() + document)
    await writer.drain()


@asynccontextmanager
async def issuing(document: bytes = b"", script: Script | None = None) -> AsyncIterator[Issuer]:
    """The issuer, until the block ends; whoever waits for it then is cut off."""
    issuer = Issuer(document, script)
    server = await asyncio.start_server(issuer.serve, "127.0.0.1", 0)
    issuer.port = server.sockets[0].getsockname()[1]
    try:
        yield issuer
    finally:
        server.close()
        for writer in issuer.writers:
            writer.transport.abort()
