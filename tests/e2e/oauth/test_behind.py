"""FastMCP that is protected by OAuth, behind the adapter: each way of ``upstream.auth``, for tools, resources, prompts
and lists alike, and for two people at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import get_default_algorithms

from adapter.oauth.upstream_credentials import PrivateKey
from tests.e2e.filing import PythonHost, content_of, curl, python_host, said
from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.front import protected_adapter
from tests.e2e.oauth.protection import Auth, as_service, behind, in_front, person, protected_server, signed_in
from tests.e2e.talk import Command
from tests.edge.raw import INITIALIZE
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
        asked = ("-i", "-d", INITIALIZE.decode(), "-H", "Content-Type: application/json")
        without = await curl(*asked, "-H", "Accept: application/json, text/event-stream", front.url)
        assert without.status == 401
        assert upstream.split("/")[2].encode() not in without.body, "the upstream's own address is told"


@pytest.mark.parametrize("mode", MODES)
async def test_the_adapter_is_a_client_itself(
    mode: str, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``client_credentials``: one token for everybody, which is asked for once, and renewed before it expires."""
    auth = as_service("client_credentials")
    async with (
        in_front(fastmcp4_python, tmp_path, auth, people=False, lifetime=40) as (issuer, front),
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
    auth = by_key(**named)
    known = {"port": port, "clients": [holder_of(key, algorithm)]}
    async with (
        in_front(fastmcp4_python, tmp_path, auth, people=False, **known) as (issuer, front),
        python_host(front.url, "2026-07-28") as host,
    ):
        await is_seen_as(host, "holder")
        assert (await issuer.counted())["/token"] == 1


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


def by_key(**more: str) -> Auth:
    """The adapter asks for tokens as the holder of the key in ``client.pem``."""
    own = {
        "client_id": "holder",
        "private_key_file": "client.pem",
        "private_key_id": "first",
        "scopes": ["mcp"],
    }
    return lambda issuer, upstream: {
        "type": "client_credentials",
        "issuer": issuer.issuer,
        "resource": upstream,
        **own,
        **more,
    }


@pytest.mark.parametrize("mode", MODES)
async def test_tokens_of_people_are_exchanged(
    mode: str, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """``token_exchange``: the upstream sees each person by a token of its own audience; theirs stays here."""
    async with (
        in_front(fastmcp4_python, tmp_path, as_service("token_exchange")) as (issuer, front),
        person("ada", front, mode) as ada,
        person("bob", front, mode) as bob,
    ):
        for _ in range(3):
            await asyncio.gather(is_seen_as(ada, "ada"), is_seen_as(bob, "bob"))
        # Two people were given codes, and two tokens were exchanged.
        assert (await issuer.counted())["/token"] == 4
