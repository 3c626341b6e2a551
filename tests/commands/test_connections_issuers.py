"""``check --connect`` with issuers of access tokens: what it finds of each, over sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from adapter.commands.connections import reach_issuers
from adapter.settings.auth import OAuth
from tests.commands.running import ONE_SERVER, mcp_adapter
from tests.oauth.authorization_server import (
    INTROSPECTION,
    KEYS,
    OAUTH,
    Answer,
    AuthorizationServer,
    authorization_server,
)
from tests.pipeline.issuer import document, ec_key, jwk
from tests.ports import free_port


@pytest.fixture
async def server() -> AsyncIterator[AuthorizationServer]:
    async with authorization_server() as running:
        running.answers[INTROSPECTION] = {"active": False}
        yield running


def oauth(server: AuthorizationServer, **entry: object) -> OAuth:
    endpoint = {"url": server.url(INTROSPECTION), "client_id": "adapter", "client_secret": "hidden"}
    return OAuth.model_validate({"issuers": [{"issuer": server.issuer, **entry}], "introspection": endpoint})


async def test_issuers_are_reached(server: AuthorizationServer) -> None:
    """Their keys are fetched, and a made-up token is asked about."""
    issuer, introspection = await reach_issuers(oauth(server))
    assert (issuer.server, issuer.reachable) == ("core.auth.oauth.issuers[0]", True)
    assert issuer.detail.startswith("publishes 1 usable key, in ")
    assert (introspection.server, introspection.reachable) == ("core.auth.oauth.introspection", True)
    assert introspection.detail.startswith("answers, in ")
    assert await reach_issuers(None) == ()


@pytest.mark.parametrize(
    ("path", "answer", "why"),
    [
        (OAUTH, 404, "The issuer's metadata cannot be used: The answer has status 404"),
        (
            OAUTH,
            {"issuer": "https://other.example"},
            "The issuer's metadata cannot be used: the metadata names",
        ),
        (KEYS, b"<html>", "the document is not JSON"),
        (KEYS, document(), "publishes no key for RS256, ES256, but for no algorithm: change algorithms"),
        (INTROSPECTION, 401, "it refused the adapter's client_id and client_secret"),
        (INTROSPECTION, {"active": True}, "does not say that a token which was just made up is not active"),
    ],
)
async def test_what_would_refuse_every_token_is_told(
    server: AuthorizationServer, path: str, answer: Answer, why: str
) -> None:
    """Before the first person finds out."""
    server.answers[path] = answer
    (found,) = [each for each in await reach_issuers(oauth(server)) if not each.reachable]
    assert found.detail.startswith(why)


async def test_keys_for_other_algorithms_are_none(server: AuthorizationServer) -> None:
    """The sentence says for which they are."""
    server.keys(jwk(ec_key(), "k"))
    issuer, _ = await reach_issuers(oauth(server, algorithms=["RS256"], jwks_url=server.url(KEYS)))
    assert issuer.detail == "publishes no key for RS256, but for ES256: change algorithms"


def test_an_issuer_that_cannot_be_reached_fails_the_check(tmp_path: Path) -> None:
    """With --connect alone; the settings are fine."""
    issuers = [{"issuer": f"http://127.0.0.1:{free_port()}"}]
    core = {"public_base_url": "http://localhost", "auth": {"oauth": {"issuers": issuers}}}
    (tmp_path / "config.yaml").write_text(ONE_SERVER + yaml.safe_dump({"core": core}))
    assert mcp_adapter(tmp_path, "check", "--config", "config.yaml").returncode == 0
    done = mcp_adapter(tmp_path, "check", "--connect", "--config", "config.yaml")
    assert done.returncode == 1
    told = "core.auth.oauth.issuers[0]: The authorization server cannot be reached: it refused the connection"
    assert told in done.stderr
    counted = "config.yaml is fine, but 1 server and core.auth.oauth.issuers[0] cannot be reached."
    assert done.stderr.splitlines()[-1] == counted
