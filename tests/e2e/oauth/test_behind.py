"""FastMCP that is protected by OAuth, behind the adapter: each way of ``upstream.auth``, for tools, resources, prompts
and lists alike, and for two people at once."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import get_default_algorithms

from adapter.oauth.client_authentication import PrivateKey
from tests.e2e.clients.browser import Browser
from tests.e2e.filing import PythonHost, content_of, curl, python_host, said, texts
from tests.e2e.oauth.authorization_server import AuthorizationServer, authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.oauth.protection import person, protected_server, service, signed_in
from tests.e2e.processes import Adapter
from tests.e2e.talk import Command
from tests.ports import free_port

pytestmark = pytest.mark.e2e

MODES = ("legacy", "2026-07-28")
CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "python_v2 2026-07-28",
    "ts_v1",
    "ts_v2 legacy",
    "ts_v2 2026-07-28",
)
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}
LINK = re.compile(r"http://127\.0\.0\.1:\d+/authorize/[\w/-]+")


def behind(upstream: str, auth: dict[str, Any]) -> dict[str, Any]:
    """The settings of a server with these credentials."""
    return {"upstream": {"url": upstream, "auth": auth}, "adapters": []}


async def is_seen_as(host: PythonHost, name: str) -> None:
    """Everything that the upstream offers is asked for with the token of ``name``."""
    assert await host.tools() == ["whoami", "echo", "ticket"]
    assert said(await host.call("whoami")) == name
    assert content_of(await host.read("note://whoami")).decode() == name
    assert [each["uri"] for each in await host.resources()] == ["note://whoami"]
    prompt = await host.client.get_prompt("whoami")
    assert name in str(prompt.messages[0].content)
    assert [each.name for each in (await host.client.list_prompts()).prompts] == ["whoami"]


@pytest.mark.parametrize("told", [False, True], ids=["own address", "told the mount"])
async def test_strict_clients_sign_in_for_the_upstream(
    told: bool, command: Command, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``passthrough`` with metadata: the mount names the upstream's issuer, whose tokens go on to the upstream; also
    where the upstream was told that it is reached at the mount."""
    port = free_port()
    public = f"http://127.0.0.1:{port}/tools"
    mount = f"{public}/mcp"
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(
            fastmcp4_python, tmp_path, issuer, audience=mount, public=public if told else None
        ) as upstream,
        protected_adapter(
            tmp_path,
            upstream,
            None,
            port=port,
            server=behind(upstream, {"type": "passthrough", "metadata": True}) | {"mount_path": "/tools/mcp"},
        ) as front,
    ):
        for name in CLIENTS:
            async with signed_in(command, name, "ada", front.url, tmp_path) as client:
                assert (await client.ask("call", tool="whoami", arguments={}))["text"] == "ada", name
        for mode in MODES:
            async with person("ada", front, mode) as ada, person("bob", front, mode) as bob:
                await is_seen_as(ada, "ada")
                await is_seen_as(bob, "bob")
        asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
        accepting = ("-H", "Accept: application/json, text/event-stream")
        without = await curl("-i", "-d", asked, "-H", "Content-Type: application/json", *accepting, front.url)
        assert without.status == 401
        assert upstream.split("/")[2].encode() not in without.body, "the upstream's own address is told"


@pytest.mark.parametrize("mode", MODES)
async def test_the_adapter_is_a_client_itself(
    mode: str, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``client_credentials``: one token for everybody, which is asked for once, and renewed before it expires."""
    async with (
        authorization_server(tmp_path, lifetime=40) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path,
            upstream,
            None,
            server=behind(upstream, {"type": "client_credentials", **service(issuer, upstream)}),
        ) as front,
        python_host(front.url, mode) as host,
        python_host(front.url, mode) as another,
    ):
        await asyncio.gather(is_seen_as(host, "service"), is_seen_as(another, "service"))
        assert (await issuer.counted())["/token"] == 1


KEYS: dict[str, Callable[[], PrivateKey]] = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
"""Makers of keys, by the algorithm for which a client registers them."""


@pytest.mark.parametrize(
    ("algorithm", "audience"),
    [("RS256", "the token endpoint"), ("EdDSA", "the token endpoint"), ("ES256", "the issuer")],
)
async def test_the_adapter_proves_itself_by_a_key(
    algorithm: str, audience: str, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``private_key_jwt``: the issuer knows the public key alone, and no secret is shared."""
    key = KEYS[algorithm]()
    (tmp_path / "client.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    port = free_port()
    named = {"token_endpoint": f"http://127.0.0.1:{port}/token"} if audience == "the issuer" else {}
    async with (
        authorization_server(tmp_path, port=port, clients=[holder_of(key, algorithm)]) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path, upstream, None, server=behind(upstream, by_key(issuer, upstream, **named))
        ) as front,
        python_host(front.url, "2026-07-28") as host,
    ):
        await is_seen_as(host, "holder")
        assert (await issuer.counted())["/token"] == 1


async def test_the_key_of_another_is_no_proof(
    oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """The issuer refuses the assertion, and the client is told its error code."""
    mine, other = KEYS["ES256"](), KEYS["ES256"]()
    (tmp_path / "client.pem").write_bytes(
        mine.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    async with (
        authorization_server(tmp_path, clients=[holder_of(other, "ES256")]) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path, upstream, None, server=behind(upstream, by_key(issuer, upstream))
        ) as front,
    ):
        with pytest.raises(Exception) as failed:
            async with python_host(front.url, "2026-07-28") as host:
                assert (await host.call("whoami"))["isError"]
        assert "invalid_client" in words_of(failed.value)


def holder_of(key: PrivateKey, algorithm: str) -> dict[str, Any]:
    """The client ``holder``, as the issuer knows it."""
    public = json.loads(get_default_algorithms()[algorithm].to_jwk(key.public_key()))
    return {
        "client_id": "holder",
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_signing_alg": algorithm,
        "jwks": {"keys": [{**public, "kid": "first", "use": "sig", "alg": algorithm}]},
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    }


def by_key(issuer: AuthorizationServer, upstream: str, **more: str) -> dict[str, Any]:
    """``upstream.auth`` by which the adapter asks for tokens as the holder of the key in ``client.pem``."""
    return {
        "type": "client_credentials",
        "issuer": issuer.issuer,
        "client_id": "holder",
        "private_key_file": "client.pem",
        "private_key_id": "first",
        "scopes": ["mcp"],
        "resource": upstream,
        **more,
    }


@pytest.mark.parametrize("mode", MODES)
async def test_tokens_of_people_are_exchanged(
    mode: str, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``token_exchange``: the upstream sees each person by a token of its own audience; theirs stays here."""
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path,
            upstream,
            issuer,
            server=behind(upstream, {"type": "token_exchange", **service(issuer, upstream)}),
        ) as front,
        person("ada", front, mode) as ada,
        person("bob", front, mode) as bob,
    ):
        for _ in range(3):
            await asyncio.gather(is_seen_as(ada, "ada"), is_seen_as(bob, "bob"))
        # Two people were given codes, and two tokens were exchanged.
        assert (await issuer.counted())["/token"] == 4


@pytest.mark.parametrize("mode", MODES)
async def test_people_give_grants(
    mode: str, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``authorization_code``: who has no grant is answered with a link; what they grant is theirs alone."""
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path, upstream, issuer, server=behind(upstream, {"type": "authorization_code"})
        ) as front,
        AsyncExitStack() as stack,
    ):
        links = {name: await link_of(name, front, mode) for name in ("ada", "bob")}
        assert links["ada"] != links["bob"]

        stolen = await grant("bob", links["ada"], issuer, front)
        assert "Access given" not in stolen, stolen
        assert "Access given" in await grant("ada", links["ada"], issuer, front)
        ada = await stack.enter_async_context(person("ada", front, mode))
        await is_seen_as(ada, "ada")

        links["bob"] = await link_of("bob", front, mode)
        assert "Access given" in await grant("bob", links["bob"], issuer, front)
        bob = await stack.enter_async_context(person("bob", front, mode))
        await asyncio.gather(is_seen_as(ada, "ada"), is_seen_as(bob, "bob"))


async def link_of(name: str, front: Adapter, mode: str) -> str:
    """The link that somebody without a grant is told: by the answer to a call, or to the first request of all where
    the upstream lets nobody begin a session without a token."""
    try:
        async with person(name, front, mode) as host:
            words = await refusal(host)
    except Exception as error:
        words = words_of(error)
    found = LINK.search(words)
    assert found is not None, words
    return found[0]


def words_of(error: BaseException) -> str:
    """The text of an error and of those in it, with the data that came with them."""
    inner = getattr(error, "exceptions", ())
    return " ".join([f"{error} {getattr(error, 'error', '')}", *map(words_of, inner)])


async def refusal(host: PythonHost) -> str:
    """The words with which a call is refused, as an error of the tool or of the protocol."""
    try:
        result = await host.call("whoami")
    except Exception as error:
        return words_of(error)
    assert result["isError"], result
    return texts(result)


async def grant(name: str, link: str, issuer: AuthorizationServer, front: Adapter) -> str:
    """The last page that a person sees who opens a link and agrees; they type a token of their own where asked."""
    browser = Browser(name, token=await issuer.token(name, front.url))
    return (await asyncio.to_thread(browser.visit, link)).text


async def test_a_server_that_nobody_has_granted_is_healthy(
    oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """The adapter's own requests have no person; that they are refused says nothing about the server's health."""
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        protected_adapter(
            tmp_path,
            upstream,
            issuer,
            server=behind(upstream, {"type": "authorization_code"}),
            core={"upstream_ping": {"interval_seconds": 0.2}},
        ) as front,
    ):
        for _ in range(10):
            await asyncio.sleep(0.2)
            assert (await curl(f"{front.base}/readyz")).status == 200
