"""A certified authorization server, oidc-provider, as a process of its own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from tests.e2e.clients.browser import Browser, answer_of
from tests.e2e.processes import START_TIMEOUT, start
from tests.e2e.provision import node, oauth_packages
from tests.ports import free_port

SCRIPT = Path(__file__).parent / "authorization_server.mjs"

PEOPLE: Mapping[str, Mapping[str, Any]] = {
    "ada": {"groups": ["staff", "operators"]},
    "bob": {"groups": ["staff"]},
    "eve": {},
}
"""The claims of each person who can sign in."""

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"

SERVICE: Mapping[str, Any] = {
    "client_id": "service",
    "client_secret": "secret-of-the-service",
    "grant_types": ["client_credentials", EXCHANGE],
    "redirect_uris": [],
    "response_types": [],
}
"""A confidential client for the requests of services; it may ask for introspection too."""

REDIRECT_URI = "http://127.0.0.1:9/callback"
"""The client of ``token`` is sent there; nobody listens, because no browser opens it."""


@dataclass(frozen=True)
class AuthorizationServer:
    """``issuer`` is its identifier, and the beginning of all its URLs."""

    issuer: str

    async def ask(
        self, path: str, form: Mapping[str, str], *, client: Mapping[str, Any] | None = None
    ) -> Any:
        """Send a form, with the credentials of ``client``; the JSON of the answer. An error has a member ``error``."""
        basic = client and aiohttp.encode_basic_auth(client["client_id"], client["client_secret"])
        headers = {"Authorization": basic} if basic else {}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.issuer}{path}", data=form, headers=headers) as response,
        ):
            return json.loads(await response.text() or "{}")

    async def register(self, *redirect_uris: str) -> str:
        """Register a public client; its id."""
        metadata = {"redirect_uris": redirect_uris, "token_endpoint_auth_method": "none"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.issuer}/reg", json=metadata) as response,
        ):
            client_id: str = (await response.json())["client_id"]
            return client_id

    async def tokens(self, person: str, resource: str, scope: str = "mcp") -> dict[str, Any]:
        """Sign ``person`` in to a client of its own; the answer of the token endpoint."""
        client = await self.register(REDIRECT_URI)
        verifier = secrets.token_urlsafe(48)
        asked = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": REDIRECT_URI,
            "scope": scope,
            "resource": resource,
            "state": secrets.token_urlsafe(16),
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        url = f"{self.issuer}/auth?{urlencode(asked)}"
        answer = answer_of(await asyncio.to_thread(Browser(person).approve, url))
        form = {
            "grant_type": "authorization_code",
            "client_id": client,
            "redirect_uri": REDIRECT_URI,
            "code": answer["code"],
            "code_verifier": verifier,
            "resource": resource,
        }
        told: dict[str, Any] = {**await self.ask("/token", form), "client_id": client}
        return told

    async def token(self, person: str, resource: str, scope: str = "mcp") -> str:
        """An access token of ``person`` for ``resource``."""
        token: str = (await self.tokens(person, resource, scope))["access_token"]
        return token

    async def counted(self) -> dict[str, int]:
        """The number of requests that it got so far, by path."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer}/counted") as response:
            counts: dict[str, int] = await response.json()
            return counts


def challenge_of(verifier: str) -> str:
    """The challenge S256 of RFC 7636."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@asynccontextmanager
async def authorization_server(
    place: Path, *, clients: Sequence[Mapping[str, Any]] = (), **options: Any
) -> AsyncIterator[AuthorizationServer]:
    """The server, listening until the block ends; ``options`` are those of the script. Raises Missing."""
    told = {"port": free_port(), "people": PEOPLE, "clients": [SERVICE, *clients], **options}
    argv: list[str | Path] = [node(), SCRIPT, json.dumps(told)]
    async with await start(
        argv, place / "authorization.log", {"NODE_PACKAGES": str(oauth_packages())}
    ) as running:
        yield AuthorizationServer(await running.line(START_TIMEOUT))
