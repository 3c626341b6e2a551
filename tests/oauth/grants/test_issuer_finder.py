"""The authorization server of an upstream is found, and nobody else is asked on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import structlog

from adapter.errors import AuthorizationFailed, UpstreamUnreachable
from adapter.oauth.discovery import FRESH, PAUSE
from adapter.oauth.grants.issuer_finder import GrantConfig, IssuerFinder
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.upstream.outgoing import IssuerHttp
from tests.pipeline.issuer import Clock

UPSTREAM, ISSUER = "https://notes.example/mcp", "https://login.example"
METADATA = "https://notes.example/.well-known/oauth-protected-resource"
SERVER = f"{ISSUER}/.well-known/oauth-authorization-server"


def server(issuer: str = ISSUER, **members: Any) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "code_challenge_methods_supported": ["S256"],
        **members,
    }


def resource(**members: Any) -> dict[str, Any]:
    return {"resource": UPSTREAM, "authorization_servers": [ISSUER], **members}


class Documents(IssuerHttp):
    """A network of documents by their URLs. ``asked`` are all URLs, in order."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__()
        self.found = found
        self.asked: list[str] = []

    async def get(self, url: str) -> tuple[int, bytes]:
        self.asked.append(url)
        if url not in self.found:
            return 404, b""
        if self.found[url] is None:
            raise UpstreamUnreachable()
        return 200, orjson.dumps(self.found[url])

    async def post(
        self, url: str, body: bytes, kind: str, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        raise AssertionError((url, body, kind, headers))


def finder(documents: Documents, clock: Clock | None = None, **terms: Any) -> IssuerFinder:
    auth = UpstreamAuth.model_validate({"type": "authorization_code", **terms})
    settings = GrantConfig("notes", UPSTREAM, "https://tools.example", auth)
    return IssuerFinder(settings, documents, structlog.get_logger(), clock or Clock(0.0))


async def test_an_upstream_names_its_server() -> None:
    """RFC 9728, then RFC 8414; the resource and the scopes are the upstream's."""
    documents = Documents({f"{METADATA}/mcp": resource(scopes_supported=["notes"]), SERVER: server()})
    found = await finder(documents).find()
    assert (found.issuer.url("token_endpoint"), found.resource, found.scopes) == (
        f"{ISSUER}/token",
        UPSTREAM,
        ("notes",),
    )
    assert documents.asked == [f"{METADATA}/mcp", SERVER]


async def test_metadata_for_the_whole_host() -> None:
    """The second well-known place is for all resources of a host."""
    documents = Documents({METADATA: resource(resource="https://notes.example"), SERVER: server()})
    assert (await finder(documents).find()).resource == "https://notes.example"


async def test_an_upstream_that_was_told_its_address() -> None:
    """Its metadata name the address that ``resource`` allows, and stand at the path of it; no other name counts."""
    public = "https://public.example/notes"
    documents = Documents({f"{METADATA}/notes": resource(resource=public), SERVER: server()})
    assert (await finder(documents, resource=public).find()).resource == public
    documents = Documents({f"{METADATA}/mcp": resource(resource=public), SERVER: server()})
    with pytest.raises(AuthorizationFailed):
        await finder(documents).find()


async def test_a_challenge_names_metadata_and_scopes() -> None:
    """Of the upstream's own host; the scopes of the challenge are those that are needed now."""
    place = "https://notes.example/meta"
    documents = Documents({place: resource(scopes_supported=["all"]), SERVER: server()})
    it = finder(documents)
    it.heard(f'Bearer error="invalid_token", resource_metadata="{place}", scope="a b"')
    assert (await it.find()).scopes == ("a", "b")
    assert documents.asked[0] == place


async def test_a_challenge_that_comes_later() -> None:
    """The first one counts at once; one without parameters changes nothing."""
    documents = Documents({f"{METADATA}/mcp": resource(), SERVER: server()})
    it = finder(documents)
    assert (await it.find()).scopes == ()
    it.heard('Bearer scope="a"')
    it.heard("Bearer")
    assert (await it.find()).scopes == ("a",)


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example/meta",
        "http://notes.example/meta",
        "http://169.254.169.254/latest",
        "https://notes.example:444/",
    ],
)
async def test_a_challenge_does_not_lead_elsewhere(place: str) -> None:
    """SSRF by metadata URL: another host, scheme or port is not asked."""
    documents = Documents({f"{METADATA}/mcp": resource(), SERVER: server()})
    it = finder(documents)
    it.heard(f'Bearer resource_metadata="{place}"')
    await it.find()
    assert place not in documents.asked


async def test_a_server_on_a_private_address_is_not_asked() -> None:
    """SSRF by issuer: the metadata of a public upstream lead to no neighbour."""
    evil = "http://169.254.169.254"
    documents = Documents({f"{METADATA}/mcp": resource(authorization_servers=[evil])})
    with pytest.raises(AuthorizationFailed):
        await finder(documents).find()
    assert not any(evil in url for url in documents.asked)


async def test_settings_come_first() -> None:
    """An issuer is asked itself; endpoints ask nobody."""
    documents = Documents({SERVER: server()})
    assert (await finder(documents, issuer=ISSUER).find()).issuer.issuer == ISSUER
    assert documents.asked == [SERVER]
    documents = Documents({})
    found = await finder(
        documents,
        authorization_endpoint=f"{ISSUER}/a",
        token_endpoint=f"{ISSUER}/t",
        scopes=("x",),
        resource="urn:notes",
    ).find()
    assert (found.issuer.url("token_endpoint"), found.scopes, found.resource) == (
        f"{ISSUER}/t",
        ("x",),
        "urn:notes",
    )
    assert documents.asked == []
    plain = finder(documents, authorization_endpoint=f"{ISSUER}/a", token_endpoint=f"{ISSUER}/t")
    assert (await plain.find()).resource == ""


async def test_a_server_that_does_not_speak_of_pkce() -> None:
    """It is refused with a sentence that names settings; with these settings its metadata is not asked."""
    documents = Documents({SERVER: server(code_challenge_methods_supported=None)})
    with pytest.raises(AuthorizationFailed) as failed:
        await finder(documents, issuer=ISSUER).find()
    named = ("issuer", "authorization_endpoint", "token_endpoint", "client_id")
    reason = failed.value.reason or ""
    assert all(key in reason for key in named)
    documents.asked.clear()
    found = await finder(
        documents,
        issuer=ISSUER,
        authorization_endpoint=f"{ISSUER}/a",
        token_endpoint=f"{ISSUER}/t",
        client_id="adapter",
    ).find()
    assert (found.issuer.issuer, found.issuer.url("token_endpoint")) == (ISSUER, f"{ISSUER}/t")
    assert documents.asked == []


async def test_an_upstream_of_2025_03() -> None:
    """Without metadata of its own its origin is the issuer."""
    origin = "https://notes.example"
    documents = Documents({f"{origin}/.well-known/oauth-authorization-server": server(origin)})
    found = await finder(documents).find()
    assert (found.issuer.issuer, found.resource) == (origin, UPSTREAM)


async def test_refresh_tokens_are_asked_for() -> None:
    """Servers that offer offline_access want to hear of it."""
    documents = Documents(
        {
            f"{METADATA}/mcp": resource(scopes_supported=["notes"]),
            SERVER: server(scopes_supported=["openid", "offline_access"]),
        }
    )
    assert (await finder(documents).find()).scopes == ("notes", "offline_access")


async def test_found_once_and_failed_not_often() -> None:
    """What was found is used for a while; after a failure nobody is asked at once again."""
    clock = Clock(0.0)
    documents = Documents({f"{METADATA}/mcp": resource(), SERVER: server()})
    it = finder(documents, clock)
    await it.find()
    await it.find()
    assert len(documents.asked) == 2
    clock.now = FRESH
    documents.found[SERVER] = None
    assert (await it.find()).resource == UPSTREAM
    documents = Documents({f"{METADATA}/mcp": None})
    it = finder(documents, clock)
    for _ in range(3):
        with pytest.raises(AuthorizationFailed):
            await it.find()
    assert len(documents.asked) == 1
    clock.now += PAUSE
    documents.found |= {f"{METADATA}/mcp": resource(), SERVER: server()}
    assert (await it.find()).resource == UPSTREAM
