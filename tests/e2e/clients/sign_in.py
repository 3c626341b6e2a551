"""People who sign in for a Python client: each SDK's OAuth client, and a browser that opens what it asks for.

The environment names the person: ``SIGN_IN_AS``. Without it a client does not sign in.
"""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from typing import Any

from tests.e2e.clients.browser import Browser, answer_of

REDIRECT_URI = "http://127.0.0.1:9/callback"
"""Nobody listens there: the browser hands the answer over without opening it."""


class Keeping:
    """A TokenStorage of either SDK, for the time of one conversation."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info


class SignIn:
    """Opens authorization URLs in the browser of one person, and has the answer for the client."""

    def __init__(self, person: str) -> None:
        self._browser = Browser(person)
        self._answer: dict[str, str] = {}

    async def open(self, url: str) -> None:
        """Sign in, and keep the parameters that the browser takes back to the client."""
        self._answer = answer_of(await asyncio.to_thread(self._browser.approve, url))

    async def code(self) -> tuple[str, str | None]:
        """The answer as the SDK 1.x takes it."""
        return self._answer["code"], self._answer.get("state")

    async def result(self) -> Any:
        """The answer as the SDK 2.x takes it."""
        return import_module("mcp.shared.auth").AuthorizationCodeResult(**self._answer)


def provider(url: str, *, result: bool, person: str | None = None) -> Any:
    """The OAuth client of the installed SDK for the server at ``url``; None where nobody signs in.

    ``result``: the SDK is 2.x, whose callback has a type of its own.
    """
    person = person or os.environ.get("SIGN_IN_AS")
    if person is None:
        return None
    sign_in = SignIn(person)
    metadata = import_module("mcp.shared.auth").OAuthClientMetadata(
        client_name="client of the tests", redirect_uris=[REDIRECT_URI]
    )
    return import_module("mcp.client.auth").OAuthClientProvider(
        url, metadata, Keeping(), sign_in.open, sign_in.result if result else sign_in.code
    )
