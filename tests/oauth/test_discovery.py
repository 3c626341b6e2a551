"""Metadata of issuers over sockets: where it is looked for, how long it holds, and that one issuer is not another."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import AdapterError, UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.oauth.discovery import FRESH, RETRY, Refreshed, issuer_metadata
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.upstream.outgoing import LARGEST, IssuerHttp
from tests.oauth.authorization_server import (
    KEYS,
    OAUTH,
    OPENID,
    Answer,
    AuthorizationServer,
    authorization_server,
)
from tests.pipeline.issuer import Clock


@pytest.fixture
def seconds() -> Clock:
    return Clock(0.0)


@pytest.fixture
def metadata(server: AuthorizationServer, seconds: Clock) -> Refreshed[ServerMetadata]:
    return issuer_metadata(IssuerHttp(), server.issuer, seconds)


async def test_metadata_is_where_rfc_8414_puts_it(
    server: AuthorizationServer, metadata: Refreshed[ServerMetadata]
) -> None:
    """It is asked for once."""
    found = [await metadata.get() for _ in range(3)]
    assert found[0].url("jwks_uri") == server.url(KEYS)
    assert found[0] is found[2]
    assert server.asked == [OAUTH]


@pytest.mark.parametrize(
    ("place", "asked"), [(f"{OAUTH}/realms/a", 1), (f"{OPENID}/realms/a", 2), (f"/realms/a{OPENID}", 3)]
)
async def test_each_place_is_asked_in_turn(place: str, asked: int) -> None:
    """For an issuer with a path there are three."""
    async with authorization_server("/realms/a") as server:
        said = server.answers.pop(f"{OAUTH}/realms/a")
        server.answers[place] = said
        assert (await issuer_metadata(IssuerHttp(), server.issuer).get()).issuer == server.issuer
        assert len(server.asked) == asked
        assert server.asked[-1] == place


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (404, "The answer has status 404 instead of the document."),
        (302, "The answer has status 302 instead of the document."),
        (b"<html>", "the document is not JSON"),
        (b"[]", "the document is not a JSON object"),
        (b'{"issuer": "https://other.example"}', "the metadata names another issuer"),
        (b"{}", "the metadata names another issuer"),
        (b'{"issuer": ["x"]}', "the metadata names another issuer"),
        (b'{"a": [' + b"1," * 5000 + b"1]}", "the document has more than 4096 values"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "the document is nested too deep"),
        (b"[" * 5000, "the document has more than 4096 values"),
        (b" " * (LARGEST + 1), f"The document is larger than {LARGEST} bytes."),
    ],
)
async def test_what_is_no_metadata_of_this_issuer_is_not_used(
    server: AuthorizationServer, metadata: Refreshed[ServerMetadata], answer: Answer, why: str
) -> None:
    """Whatever stands there instead, the next place is asked; without one the last reason is told."""
    server.answers[OAUTH] = answer
    server.answers[OPENID] = {"issuer": server.issuer, "jwks_uri": server.url(KEYS)}
    assert (await metadata.get()).issuer == server.issuer
    server.answers[OPENID] = answer
    with pytest.raises(UpstreamBroken) as refused:
        await issuer_metadata(IssuerHttp(), server.issuer).get()
    assert str(refused.value).startswith(f"The issuer's metadata cannot be used: {why}")


async def test_a_final_slash_is_another_issuer(server: AuthorizationServer) -> None:
    """Identifiers are compared to the last character (RFC 8414 §3.3)."""
    with pytest.raises(UpstreamBroken, match="to the last character"):
        await issuer_metadata(IssuerHttp(), f"{server.issuer}/").get()


async def test_an_issuer_that_is_away_is_asked_once(server: AuthorizationServer) -> None:
    """The other places of it are away too."""
    closed = server.issuer
    async with authorization_server() as other:
        closed = other.issuer
    with pytest.raises(UpstreamUnreachable) as refused:
        await issuer_metadata(IssuerHttp(), closed).get()
    assert closed not in str(refused.value)
    server.go.clear()
    with pytest.raises(UpstreamSilent):
        await issuer_metadata(IssuerHttp(timeout=0.5), server.issuer).get()
    assert server.asked == [OAUTH]
    server.go.set()


async def test_all_wait_for_one_answer(
    server: AuthorizationServer, metadata: Refreshed[ServerMetadata]
) -> None:
    """However many ask, and whoever of them leaves."""
    server.go.clear()
    asking = [asyncio.ensure_future(metadata.get()) for _ in range(9)]
    await server.begun.wait()
    asking.pop().cancel()
    server.go.set()
    assert len({id(found) for found in await asyncio.gather(*asking)}) == 1
    assert server.asked == [OAUTH]


async def test_metadata_is_asked_for_again_after_a_while(
    server: AuthorizationServer, metadata: Refreshed[ServerMetadata], seconds: Clock
) -> None:
    """And used on where no newer can be had; a failure is not repeated at once."""
    first = await metadata.get()
    seconds.now = FRESH
    server.answers[OAUTH] = 500
    assert await metadata.get() is first
    assert await metadata.get() is first
    assert server.asked == [OAUTH, OAUTH, OPENID]
    seconds.now += RETRY
    server.answers[OAUTH] = {"issuer": server.issuer, "jwks_uri": server.url("/new")}
    assert (await metadata.get()).url("jwks_uri") == server.url("/new")


async def test_metadata_can_be_outdated(
    server: AuthorizationServer, metadata: Refreshed[ServerMetadata]
) -> None:
    """When an endpoint that it names has failed."""
    await metadata.get()
    metadata.outdate()
    await metadata.get()
    assert server.asked == [OAUTH, OAUTH]


async def test_failures_are_of_the_catalogue(server: AuthorizationServer) -> None:
    """So that whoever asks can tell them from defects."""
    with pytest.raises(AdapterError):
        await issuer_metadata(IssuerHttp(), f"{server.issuer}/none").get()
