"""A token endpoint on a socket, which remembers what it was asked, and an upstream that wants its tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from tests.edge.raw import Exchange, Head, RawUpstream, read_body, read_head

CHALLENGE = 'Bearer resource_metadata="http://elsewhere.example/prm", error="invalid_token"'


class TokenServer:
    """Issues tokens ``t1``, ``t2`` and so on, each good for ``life`` seconds.

    ``answers`` are given first, as pairs of status and JSON. It answers while ``go`` is set; ``begun`` is set by each
    request. ``documents`` are served by their paths.
    """

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.heads: list[Head] = []
        self.asked: list[str] = []
        self.answers: list[tuple[int, Any]] = []
        self.documents: dict[str, Any] = {}
        self.life: object = 3600
        self.issued: dict[str, dict[str, str]] = {}
        self.go, self.begun = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/token"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            head = await read_head(reader)
            body = await read_body(reader, head)
            self.begun.set()
            await self.go.wait()
            status, answer = self._answer(head, body)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Location: /elsewhere"]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, head: Head, body: bytes) -> tuple[int, Any]:
        path = head.first.split()[1]
        self.asked.append(path)
        if head.method == "GET":
            return (200, self.documents[path]) if path in self.documents else (404, {})
        self.heads.append(head)
        self.forms.append(dict(parse_qsl(body.decode())))
        if self.answers:
            return self.answers.pop(0)
        token = f"t{len(self.issued) + 1}"
        self.issued[token] = self.forms[-1]
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life}

    def drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()


@asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    """Run one on a free port."""
    tokens = TokenServer()
    server = await asyncio.start_server(tokens.serve, "127.0.0.1", 0)
    tokens.port = server.sockets[0].getsockname()[1]
    try:
        yield tokens
    finally:
        server.close()
        tokens.drop()
        await server.wait_closed()


class ProtectedUpstream(RawUpstream):
    """An upstream that answers 401 to all requests but those with a token of ``good``, in each session one owner's.

    ``refused`` counts the others. ``documents`` are served by their paths without a token.
    """

    def protect(self, *tokens: str) -> None:
        self.good = {f"Bearer {token}" for token in tokens}
        self.refused: list[str | None] = []
        self.documents: dict[str, Any] = {}
        self.challenge = CHALLENGE

    def accept(self, *tokens: str) -> None:
        self.good = {f"Bearer {token}" for token in tokens}

    async def _answer(self, exchange: Exchange) -> None:
        path = exchange.head.first.split()[1]
        if path in self.documents:
            await exchange.json(json.dumps(self.documents[path]).encode())
        elif path.startswith("/.well-known/"):
            await exchange.answer(404, b"")
        elif (value := exchange.head.get("authorization")) in self.good:
            await super()._answer(exchange)
        else:
            self.refused.append(value)
            await exchange.answer(401, b"who are you?", f"WWW-Authenticate: {self.challenge}")

    def credentials(self, method: str) -> list[str | None]:
        """The credentials of the requests of that JSON-RPC or HTTP method, in order."""
        return [each.head.get("authorization") for each in self.calls(method)]
