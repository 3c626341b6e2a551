"""A protected upstream, and clients that sign people in: processes that tests of OAuth share."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.shared.exceptions import MCPError

from tests.e2e.clients.sign_in import provider
from tests.e2e.filing import PythonHost, python_host, texts
from tests.e2e.oauth.authorization_server import SERVICE, AuthorizationServer, authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.processes import START_TIMEOUT, Adapter, start
from tests.e2e.replicas import Serving
from tests.e2e.talk import Command, Talk, connected
from tests.ports import free_port

SIGN_IN_TIMEOUT = 20.0
"""Seconds a client may take to sign a person in."""


def signed_in(
    command: Command, name: str, person: str, url: str, place: Path
) -> AbstractAsyncContextManager[Talk]:
    """The client called ``name``, which has signed ``person`` in at ``url`` and is connected."""
    return connected(command, name, url, place, within=SIGN_IN_TIMEOUT, SIGN_IN_AS=person)


@asynccontextmanager
async def protected_server(
    python: Path,
    place: Path,
    issuer: AuthorizationServer,
    audience: str | None = "own",
    public: str | None = None,
) -> AsyncIterator[str]:
    """FastMCP that takes tokens of ``issuer``, for ``audience``: ``own`` is its URL, None is every one. Its URL.

    ``public`` is the address above ``/mcp`` that it was told to be reached at.
    """
    port = free_port()
    taken = {"own": f"http://127.0.0.1:{port}/mcp", None: "-"}.get(audience, audience)
    module = "tests.e2e.oauth.protected_server"
    argv: list[str | Path] = [python, "-m", module, str(port), issuer.issuer, str(taken)]
    argv.append(public or f"http://127.0.0.1:{port}")
    async with await start(argv, place / "protected_server.log") as running:
        yield await running.line(START_TIMEOUT)


def service(issuer: AuthorizationServer, upstream: str, **more: str) -> dict[str, Any]:
    """``upstream.auth`` by which the adapter asks for tokens as the service."""
    return {
        "issuer": issuer.issuer,
        "client_id": SERVICE["client_id"],
        "client_secret": SERVICE["client_secret"],
        "scopes": ["mcp"],
        "resource": upstream,
        **more,
    }


Auth = Callable[[AuthorizationServer, str], Mapping[str, Any]]
"""Makes ``upstream.auth`` for an issuer and the URL of the upstream."""


def as_service(kind: str, **more: str) -> Auth:
    """The adapter asks for tokens as the service."""
    return lambda issuer, upstream: {"type": kind, **service(issuer, upstream, **more)}


@asynccontextmanager
async def in_front(
    python: Path, place: Path, auth: Auth, *, people: bool = True, **issuing: Any
) -> AsyncIterator[tuple[AuthorizationServer, Adapter]]:
    """The issuer, and the adapter in front of a protected upstream, with these credentials for it. ``people`` sign in
    at the adapter; ``issuing`` are options of the issuer.
    """
    async with (
        authorization_server(place, **issuing) as issuer,
        protected_server(python, place, issuer) as upstream,
        protected_adapter(
            place, upstream, issuer if people else None, server=behind(upstream, auth(issuer, upstream))
        ) as front,
    ):
        yield issuer, front


def behind(upstream: str, auth: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a server with these credentials."""
    return {"upstream": {"url": upstream, "auth": auth}, "adapters": []}


def person(name: str, front: Adapter | Serving, mode: str) -> AbstractAsyncContextManager[PythonHost]:
    """The SDK's client, in which somebody has signed in."""
    return python_host(front.url, mode, auth=provider(front.url, result=True, person=name))


async def link_of(host: PythonHost, tool: str = "whoami", **arguments: str) -> str:
    """The link in the answer to a call without a grant."""
    try:
        words = texts(await host.call(tool, **arguments))
    except MCPError as error:
        words = str(error.error)
    found = re.search(r"https?://127\.0\.0\.1:\d+/authorize/[\w/-]+", words)
    assert found is not None, words
    return found[0]
