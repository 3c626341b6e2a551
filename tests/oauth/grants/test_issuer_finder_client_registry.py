"""The adapter is the client that it was configured as, that its document describes, or that it registered."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import SecretStr

from adapter.errors import AuthorizationFailed
from adapter.oauth.grants.issuer_finder import ClientRegistry, GrantConfig
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.rules.access.grants import OAuthClient
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.upstream.outgoing import token_http
from tests.oauth.grants.conftest import Cluster, StartCluster

AUTH = UpstreamAuth(type="authorization_code")
TERMS = GrantConfig("notes", "https://notes.example/mcp", "https://tools.example", AUTH)


def registry(it: Cluster, terms: GrantConfig = TERMS) -> ClientRegistry:
    return ClientRegistry(terms, it.replica().rows, token_http(), it.clock)


def metadata(it: Cluster, *, registers: bool = True, **members: object) -> ServerMetadata:
    issuer = it.issuer.issuer
    found = {"registration_endpoint": f"{issuer}/register"} if registers else {}
    return ServerMetadata(issuer, found | members, issuer)


DOCUMENTS = {"client_id_metadata_document_supported": True}


async def test_a_configured_client_comes_first(cluster: StartCluster) -> None:
    """Its secret is sent as the settings say, or as the server can take it."""
    async with cluster() as it:
        public = await registry(it, TERMS._replace(auth=UpstreamAuth(client_id="x"))).client_for(metadata(it))
        assert public == OAuthClient("x")
        secret = TERMS._replace(auth=UpstreamAuth(client_id="x", client_secret=SecretStr("y")))
        basic = await registry(it, secret).client_for(metadata(it, **DOCUMENTS))
        assert basic.method == "client_secret_basic"
        only_post = metadata(it, token_endpoint_auth_methods_supported=["client_secret_post"])
        assert (await registry(it, secret).client_for(only_post)).method == "client_secret_post"
        assert it.issuer.registered == []


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("https://tools.example", "web"),
        ("http://127.0.0.1:8932", "native"),
        ("http://localhost:8932", "native"),
        # Issuers refuse native clients whose redirect URI is https on their own machine.
        ("https://127.0.0.1:8932", "web"),
    ],
)
async def test_the_type_of_application(base: str, kind: str, cluster: StartCluster) -> None:
    """Native is who is sent an answer by http on its own machine."""
    async with cluster() as it:
        told = registry(it, TERMS._replace(base=base)).metadata()
        assert told["application_type"] == kind
        assert told["redirect_uris"] == [f"{base}/authorize/notes/callback"]


async def test_a_document_comes_second(cluster: StartCluster) -> None:
    """Where the server reads documents, and the adapter's can be fetched."""
    async with cluster() as it:
        client = await registry(it).client_for(metadata(it, **DOCUMENTS))
        assert client == OAuthClient("https://tools.example/authorize/notes/client.json")
        local = TERMS._replace(base="http://127.0.0.1:8932")
        assert (await registry(it, local).client_for(metadata(it, **DOCUMENTS))).id == "registered-1"


async def test_many_browsers_at_once_register_once(cluster: StartCluster) -> None:
    """A person who opens the page again and again leaves no crowd of clients at the server."""
    async with cluster() as it:
        one = registry(it)
        found = await asyncio.gather(*(one.client_for(metadata(it)) for _ in range(10)))
        assert {client.id for client in found} == {"registered-1"}
        assert len(it.issuer.registered) == 1


async def test_a_registration_is_kept(cluster: StartCluster) -> None:
    """Other replicas and later processes are the same client; another issuer gets another one."""
    async with cluster() as it:
        first = await registry(it).client_for(metadata(it))
        assert await registry(it).client_for(metadata(it)) == first
        assert await registry(it).client_of(it.issuer.issuer, first.id) == first
        assert await registry(it).client_of("https://other.example", first.id) is None
        assert await registry(it).client_of(it.issuer.issuer, "other") is None
        assert len(it.issuer.registered) == 1


async def test_replicas_that_register_at_once_agree(cluster: StartCluster) -> None:
    """All of them go on as the client that was written first."""
    async with cluster() as it:
        found = await asyncio.gather(*(registry(it).client_for(metadata(it)) for _ in range(4)))
        assert len({client.id for client in found}) == 1


async def test_a_forgotten_registration_is_made_anew(cluster: StartCluster) -> None:
    """As when the issuer knows the client no more, or its secret has expired."""
    async with cluster() as it:
        first = await registry(it).client_for(metadata(it))
        await registry(it).forget(it.issuer.issuer, "other")
        assert await registry(it).client_for(metadata(it)) == first
        await registry(it).forget(it.issuer.issuer, first.id)
        assert (await registry(it).client_for(metadata(it))).id == "registered-2"


async def test_no_way_to_be_a_client(cluster: StartCluster) -> None:
    """The sentence names the setting."""
    async with cluster() as it:
        with pytest.raises(AuthorizationFailed, match="client_id"):
            await registry(it).client_for(metadata(it, registers=False))
