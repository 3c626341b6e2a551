"""Two people, one server, three replicas, one shared cache: each result is met again by whom it was worked out for, on
every replica, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.browser import Browser
from tests.e2e.filing import PythonHost, python_host, said
from tests.e2e.oauth.authorization_server import AuthorizationServer, authorization_server
from tests.e2e.oauth.front import three_replicas
from tests.e2e.oauth.protection import link_of, person, protected_server, service
from tests.e2e.replicas import Serving
from tests.ports import free_port

pytestmark = pytest.mark.e2e

ROUNDS = 6
"""Repetitions of what any replica may answer: nginx takes them in turn."""

PLACES = [f"seat-{number}" for number in range(4)]
"""Arguments, each of which has a result of its own."""


def keeping(upstream: str, auth: Mapping[str, Any], vary: list[str] | None) -> dict[str, Any]:
    """A server at which ``ticket`` is kept for all replicas, apart by ``vary``; None leaves that to the adapter."""
    cache = {"enabled": True, "ttl": 600, "shared": True, **({} if vary is None else {"vary": vary})}
    return {
        "upstream": {"url": upstream, "auth": auth},
        "adapters": [],
        "stages": {"ticket": {"cache": cache}},
    }


async def tickets(host: PythonHost) -> list[str]:
    """The results for all places, asked for at once."""
    return [said(each) for each in await asyncio.gather(*(host.call("ticket", place=at) for at in PLACES))]


async def are_kept_apart(ada: PythonHost, bob: PythonHost, seen_as: tuple[str, str]) -> None:
    """Both ask at the same time, for the first time and again: the same each time, and never one of the other's."""
    first = await asyncio.gather(tickets(ada), tickets(bob))
    for told, name in zip(first, seen_as, strict=True):
        assert [ticket.rsplit(" ", 1)[0] for ticket in told] == [f"{name} {place}" for place in PLACES]
    numbers = [ticket.rsplit(" ", 1)[1] for told in first for ticket in told]
    assert len(set(numbers)) == len(numbers), "one result has served two"
    for _ in range(ROUNDS):
        assert await asyncio.gather(tickets(ada), tickets(bob)) == first


@pytest.mark.parametrize(
    ("kind", "mode", "vary"),
    [
        ("client_credentials", "legacy", None),
        ("client_credentials", "2026-07-28", ["principal"]),
        ("token_exchange", "legacy", []),
        ("passthrough", "2026-07-28", []),
        ("authorization_code", "2026-07-28", []),
    ],
)
async def test_each_result_is_its_persons(
    kind: str,
    mode: str,
    vary: list[str] | None,
    oauth_programs: None,
    replicas_programs: None,
    fastmcp4_python: Path,
    tmp_path: Path,
) -> None:
    """The upstream cannot tell people apart by ``client_credentials``; the cache does, by their access tokens. Where
    each has a credential or a grant for the upstream, settings that tell nobody apart still keep results apart."""
    port = free_port()
    audience = f"http://127.0.0.1:{port}/mcp" if kind == "passthrough" else "own"
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer, audience=audience) as upstream,
        three_replicas(
            tmp_path,
            issuer,
            upstream,
            port=port,
            server=keeping(upstream, credentials(kind, issuer, upstream), vary),
        ) as front,
        person("ada", front, mode) as ada,
        person("bob", front, mode) as bob,
    ):
        if kind == "authorization_code":
            for name, host in (("ada", ada), ("bob", bob)):
                await grants(name, host, issuer, front)
        one = kind == "client_credentials"
        await are_kept_apart(ada, bob, ("service", "service") if one else ("ada", "bob"))
        if vary:
            await is_met_again(issuer, front, mode, await tickets(ada))


def credentials(kind: str, issuer: AuthorizationServer, upstream: str) -> dict[str, Any]:
    """``upstream.auth`` of that kind."""
    own = kind in ("client_credentials", "token_exchange")
    return {"type": kind, **(service(issuer, upstream) if own else {})}


async def grants(name: str, host: PythonHost, issuer: AuthorizationServer, front: Serving) -> None:
    """Give access, which a call asks for: nobody is answered with what another one's grant brought a moment ago."""
    browser = Browser(name, token=await issuer.token(name, front.url))
    link = await link_of(host, "ticket", place="first")
    page = await asyncio.to_thread(browser.visit, link)
    assert "Access given" in page.text, page
    assert said(await host.call("ticket", place="first")).startswith(f"{name} first ")


async def is_met_again(issuer: AuthorizationServer, front: Serving, mode: str, kept: list[str]) -> None:
    """Another session of ada's, with another token of hers, finds the same results; one of bob's does not."""
    for name, same in (("ada", True), ("bob", False)):
        headers = {"Authorization": f"Bearer {await issuer.token(name, front.url)}"}
        async with python_host(front.url, mode, headers) as again:
            assert (await tickets(again) == kept) is same
