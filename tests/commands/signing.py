"""Sign-ins of commands: a server that asks for one, where people sign in, and a browser whose person agrees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.commands.client.speaking import browser
from tests.oauth.protected import answer
from tests.oauth.token_serving import ProtectedUpstream, TokenServer

APPROVE = """
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen
asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
open("asked", "a").write(url + "\\n")
back = asked["redirect_uri"] + "?"
try:
    urlopen(back + urlencode({"code": "of somebody else", "state": "guessed"}))
except OSError as refused:
    assert "404" in str(refused)
urlopen(back + urlencode({"state": asked["state"], ANSWER}))
"""
"""A browser whose person agrees, once somebody else has tried."""


def approving(place: Path, parameter: str = '"code": "c1"') -> str:
    return browser(place, APPROVE.replace("ANSWER", parameter))


CLIENT = {"client_id": "c", "redirect_uris": [], "token_endpoint_auth_method": "none"}


def register(tokens: TokenServer) -> None:
    tokens.answers.append((201, CLIENT))


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    """The authorization server."""
    async with TokenServer() as server:
        server.documents["/.well-known/oauth-authorization-server"] = {
            "issuer": server.origin,
            "authorization_endpoint": f"{server.origin}/authorize",
            "token_endpoint": server.url,
            "registration_endpoint": f"{server.origin}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        yield server


@pytest.fixture
async def protected(tokens: TokenServer) -> AsyncIterator[ProtectedUpstream]:
    """A server that takes the token t1, and names where people sign in."""
    async with ProtectedUpstream(answer) as server:
        server.protect("t1")
        place = "/.well-known/oauth-protected-resource"
        server.documents[place] = {"resource": server.url, "authorization_servers": [tokens.origin]}
        server.challenge = f'Bearer resource_metadata="{server.url.removesuffix("/mcp")}{place}"'
        yield server
