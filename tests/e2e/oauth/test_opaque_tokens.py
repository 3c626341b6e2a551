"""Opaque access tokens: an issuer whose tokens only itself can read, and the adapter that asks it about them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.oauth.authorization_server import SERVICE, AuthorizationServer, authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.oauth.protection import signed_in
from tests.e2e.processes import Adapter, Server
from tests.e2e.talk import Command

pytestmark = pytest.mark.e2e

ECHO = "tests.e2e.upstream_server"
CLIENTS = ("python_v2 2026-07-28", "ts_v1")
INTROSPECTION = "/token/introspection"


class Opaque(NamedTuple):
    """An issuer of opaque tokens, and the adapter that takes them."""

    issuer: AuthorizationServer
    front: Adapter


@asynccontextmanager
async def opaque(place: Path, **introspection: Any) -> AsyncIterator[Opaque]:
    """Both, and an upstream; ``introspection`` are more of its settings."""
    async with authorization_server(place, opaque=True) as issuer, Server(ECHO, place) as upstream:
        told = {
            "url": f"{issuer.issuer}{INTROSPECTION}",
            "client_id": SERVICE["client_id"],
            "client_secret": SERVICE["client_secret"],
            **introspection,
        }
        async with protected_adapter(place, upstream.url, issuer, oauth={"introspection": told}) as front:
            yield Opaque(issuer, front)


async def test_clients_work_with_an_opaque_token(
    command: Command, oauth_programs: None, tmp_path: Path
) -> None:
    """The issuer is asked about each token once, however many requests bring it."""
    async with opaque(tmp_path) as (issuer, front):
        for number, name in enumerate(CLIENTS, 1):
            async with signed_in(command, name, "ada", front.url, tmp_path) as client:
                assert (await client.ask("list"))["text"].split()[-2:] == ["echo", "wait"], name
                for _ in range(3):
                    assert (await client.echo("hello"))["text"] == "you said hello", name
            assert (await issuer.counted())[INTROSPECTION] == number, name
