"""A token endpoint on a socket, which remembers what it was asked, and an upstream that wants its tokens."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qsl

from tests.edge.raw import Exchange, Head, RawUpstream

CHALLENGE = 'Bearer resource_metadata="http://elsewhere.example/prm", error="invalid_token"'


async def nobody(exchange: Exchange) -> None:
    """The script of a server that answers by itself."""


class TokenServer(RawUpstream):
    """Issues tokens ``t1``, ``t2`` and so on, each good for ``life`` seconds.

    ``answers`` are given first, as pairs of status and JSON. It answers while ``go`` is set; ``begun`` is set by each
    request. ``documents`` are served by their paths.
    """

    def __init__(self) -> None:
        super().__init__(nobody)
        self.forms: list[dict[str, str]] = []
        self.heads: list[Head] = []
        self.asked: list[str] = []
        self.answers: list[tuple[int, Any]] = []
        self.documents: dict[str, Any] = {}
        self.life: object = 3600
        self.issued: dict[str, dict[str, str]] = {}
        self.go, self.begun = asyncio.Event(), asyncio.Event()
        self.go.set()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/token"

    async def _answer(self, exchange: Exchange) -> None:
        self.begun.set()
        await self.go.wait()
        status, answer = self._reply(exchange.head, exchange.body)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        await exchange.answer(status, content, "Location: /elsewhere")

    def _reply(self, head: Head, body: bytes) -> tuple[int, Any]:
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
