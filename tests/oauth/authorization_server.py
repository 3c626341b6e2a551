"""An authorization server on a socket, which says what a test has it say and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.pipeline.issuer import NOW, PrivateKey, claims, document, jwk, rsa_key, token

OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
KEYS = "/keys"
INTROSPECTION = "/introspect"

Answer = bytes | dict[str, Any] | int


class AuthorizationServer:
    """``answers`` are by path: JSON, bytes, or a status. ``asked`` are the paths in order, ``forms`` what was posted.

    ``go`` lets it answer; ``begun`` is set by each request.
    """

    def __init__(self, origin: str, path: str) -> None:
        self.origin = origin
        self.issuer = origin + path
        self.answers: dict[str, Answer] = {
            OAUTH + path: {"issuer": self.issuer, "jwks_uri": origin + KEYS},
            KEYS: document(jwk(rsa_key("first"), "k1")),
        }
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.credentials: list[str | None] = []
        self.go = asyncio.Event()
        self.go.set()
        self.begun = asyncio.Event()

    def url(self, path: str) -> str:
        return self.origin + path

    def keys(self, *members: Any) -> None:
        self.answers[KEYS] = document(*members)

    def token(self, key: PrivateKey | None = None, kid: str = "k1", **said: Any) -> str:
        """A token that is good unless something else is said."""
        return token(key or rsa_key("first"), "RS256", self.claims(**said), kid=kid)

    def claims(self, **said: Any) -> dict[str, Any]:
        return claims(**{"iss": self.issuer, "iat": int(NOW), **said})

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        self.begun.set()
        if request.method == "POST":
            self.forms.append({name: str(value) for name, value in (await request.post()).items()})
            self.credentials.append(request.headers.get("Authorization"))
        await self.go.wait()
        said = self.answers.get(request.path, 404)
        if isinstance(said, int):
            return web.Response(status=said, headers={"Location": KEYS} if 300 <= said < 400 else {})
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        return web.Response(body=body, content_type="application/json")


@asynccontextmanager
async def authorization_server(path: str = "") -> AsyncIterator[AuthorizationServer]:
    """Run one whose issuer has ``path``."""
    servers: list[AuthorizationServer] = []

    async def answer(request: web.Request) -> web.Response:
        return await servers[0].answer(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application, host="127.0.0.1") as running:
        servers.append(AuthorizationServer(str(running.make_url("/")).rstrip("/"), path))
        yield servers[0]
