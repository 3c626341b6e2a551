"""Opaque access tokens: an issuer whose tokens only itself can read, and the adapter that asks it about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.filing import curl, python_host, said
from tests.e2e.oauth.authorization_server import SERVICE, AuthorizationServer, authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.oauth.protection import signed_in
from tests.e2e.processes import Adapter, Server
from tests.e2e.talk import Command

pytestmark = pytest.mark.e2e

ECHO = "tests.e2e.upstream_server"
CLIENTS = ("python_v2 2026-07-28", "ts_v1")
INTROSPECTION = "/token/introspection"
PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
LONG_ENOUGH = 20.0
"""Seconds after which a token that is still accepted is accepted for good."""


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


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_revoked_token_is_refused_once_the_answer_about_it_is_old(
    mode: str, oauth_programs: None, tmp_path: Path
) -> None:
    """It was good for one client and its session; the issuer then revokes it, and ``cache_seconds`` pass."""
    async with opaque(tmp_path, cache_seconds=1) as (issuer, front):
        told = await issuer.tokens("ada", front.url)
        token = told["access_token"]
        assert "." not in token, "not an opaque token"
        headers = {"Authorization": f"Bearer {token}"}
        async with python_host(front.url, mode, headers) as ada:
            assert said(await ada.call("echo", text="hi")) == "you said hi"
        await issuer.ask("/token/revocation", {"token": token, "client_id": told["client_id"]})
        refused = await refused_at_last(front, token)
        assert b'error="invalid_token"' in refused
        assert b"resource_metadata=" in refused

        # The person signs in again, and is let in.
        other = {"Authorization": f"Bearer {await issuer.token('ada', front.url)}"}
        async with python_host(front.url, mode, other) as ada:
            assert said(await ada.call("echo", text="hi")) == "you said hi"


async def refused_at_last(front: Adapter, token: str) -> bytes:
    """The head and body of the first answer that refuses the token."""
    deadline = asyncio.get_running_loop().time() + LONG_ENOUGH
    while (answer := await pinged(front, token))[0] != 401:
        assert asyncio.get_running_loop().time() < deadline, "the revoked token is still accepted"
        await asyncio.sleep(0.1)
    return answer[1]


async def pinged(front: Adapter, token: str) -> tuple[int, bytes]:
    """Status, and head and body, of the answer to a request with the token."""
    fields = (f"Authorization: Bearer {token}", "Content-Type: application/json", "Accept: application/json")
    named = [word for field in fields for word in ("-H", field)]
    answer = await curl("-i", "-d", PING, *named, front.url)
    return answer.status, answer.body


async def test_a_token_for_another_mount_is_refused(oauth_programs: None, tmp_path: Path) -> None:
    """The issuer says for which resource it issued a token, as it does within a JWT."""
    async with opaque(tmp_path) as (issuer, front):
        status, _ = await pinged(front, await issuer.token("ada", f"{front.base}/other"))
        assert status == 401
        status, _ = await pinged(front, "a-token-that-nobody-issued")
        assert status == 401
        status, refused = await pinged(front, await issuer.token("ada", front.url, "admin"))
        assert status == 403
        assert b'error="insufficient_scope"' in refused
