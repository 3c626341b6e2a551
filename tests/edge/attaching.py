"""A host that attaches files to calls, and the https server from which their URLs are fetched.

Source: OpenAI, "Plugins reference", "Define file inputs" (developers.openai.com/plugins/reference, as of 2026-10).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.edge.raw import RawClient, initialize_body
from tests.state.redis.certificates import Authority

CHATGPT = "openai-mcp (ChatGPT)"

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]
"""The whole answer to a GET, or what writes it."""


class FileHost:
    """Answers each path as ``answers`` says, and then closes the connection. ``asked`` are the heads of requests."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self.port = 0
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.gone = asyncio.Event()
        """Set when somebody closed a connection before its answer was written."""

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "https") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def put(self, path: str, content: bytes, *fields: str) -> str:
        """Have a file at a path; return its URL."""
        self.answers[path] = whole(content, *fields)
        return self.url(path)

    def redirect(self, path: str, to: str) -> str:
        self.answers[path] = f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()
        return self.url(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            answer = self.answers.get(
                head.split(" ")[1].partition("?")[0], whole(b"", status="404 Not Found")
            )
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            with contextlib.suppress(ConnectionError):
                writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FileHost]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


def whole(content: bytes, *fields: str, status: str = "200 OK") -> bytes:
    head = "".join(f"{field}\r\n" for field in fields)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{head}\r\n".encode() + content


def file_host(folder: Path) -> tuple[FileHost, Path]:
    """A server that is not running yet, and the certificate of the authority that vouches for it."""
    authority = Authority(folder)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("files"))
    return FileHost(tls), authority.path


def attached(url: str, file_id: str = "file_1", **more: Any) -> dict[str, Any]:
    """A file as ChatGPT hands it to a tool."""
    return {"download_url": url, "file_id": file_id, **more}


async def opened(client: RawClient, name: str = CHATGPT) -> None:
    """Open a session as a client of that name."""
    await client.initialize(initialize_body(name=name))
