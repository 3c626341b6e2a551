"""``servers[].upstream.auth``: what each type needs, what contradicts it, and what ``check`` warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from adapter.settings.cautions import cautions
from adapter.settings.reference_page import masked
from adapter.settings.servers.upstream_auth import KEYS, AuthType, UpstreamAuth
from tests.settings.loading import loaded, refusal

OAUTH = {"oauth": {"issuers": [{"issuer": "https://login.example"}]}}
CLIENT = {"token_endpoint": "https://login.example/token", "client_id": "a", "client_secret": "s3cret"}


def written(
    auth: dict[str, Any] | None = None, core: dict[str, Any] | None = None, **upstream: Any
) -> dict[str, Any]:
    """A file with one server whose upstream has this section."""
    entry = {"url": "https://up.example/mcp", "auth": auth or {}, **upstream}
    return {"servers": [{"id": "a", "upstream": entry}], "core": core or {}}


def test_nothing_is_sent_unless_it_is_said(file: Path) -> None:
    """A server without the section is as it was, and one may say so."""
    (server,) = loaded(file, {"servers": [{"id": "a", "upstream": {"url": "http://u/"}}]}).servers
    assert (server.upstream.auth.type, server.upstream.auth.per_caller) == ("none", False)
    loaded(file, written({"type": "none"}))


def test_each_key_has_its_types() -> None:
    """A key that no type knows could never be set."""
    known = {"type"}.union(*KEYS.values())
    assert set(KEYS) == set(get_args(AuthType)) and known == set(UpstreamAuth.model_fields)


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "client_credentials", **CLIENT},
        {"type": "client_credentials", **CLIENT, "token_endpoint": None, "issuer": "https://login.example"},
        {"type": "client_credentials", **CLIENT, "client_authentication": "client_secret_post"},
        {"type": "client_credentials", **CLIENT, "token_endpoint": "http://127.0.0.1:9/token"},
        {"type": "passthrough"},
    ],
)
def test_sections_that_are_complete(file: Path, auth: dict[str, Any]) -> None:
    """Both ways to the token endpoint, both places of the secret; http is for this machine."""
    loaded(file, written(auth))


def test_a_private_key_is_enough_and_lies_beside_the_file(file: Path) -> None:
    """No word on the way of authentication is needed; the path is relative to the settings file."""
    section = {key: CLIENT[key] for key in ("token_endpoint", "client_id")}
    section |= {"type": "client_credentials", "private_key_file": "keys/a.pem"}
    (server,) = loaded(file, written(section)).servers
    assert server.upstream.auth.method == "private_key_jwt"
    assert server.upstream.auth.private_key_file == file.parent / "keys/a.pem"


@pytest.mark.parametrize(
    ("auth", "upstream", "sentence"),
    [
        ({"type": "static"}, {}, "static needs upstream.static_headers"),
        ({"metadata": True}, {}, "metadata: is only for type passthrough"),
        ({"type": "client_credentials"}, {}, "token_endpoint: or issuer is required"),
        ({"type": "client_credentials", **CLIENT, "client_id": None}, {}, "client_id: is required"),
        ({"type": "client_credentials", **CLIENT, "client_secret": None}, {}, "client_secret: is required"),
        (
            {"type": "client_credentials", **CLIENT, "client_authentication": "private_key_jwt"},
            {},
            "private_key_file: is required",
        ),
        (
            {"type": "client_credentials", **CLIENT, "private_key_file": "a.pem"},
            {},
            "client_secret: is not for client_authentication private_key_jwt",
        ),
        (
            {"type": "client_credentials", **CLIENT, "private_key_id": "k"},
            {},
            "private_key_id: is not for client_authentication client_secret_basic",
        ),
        (
            {"type": "client_credentials", **CLIENT, "token_endpoint": "http://login.example/token"},
            {},
            "must begin with https://",
        ),
        ({"type": "client_credentials", **CLIENT, "scopes": ["a b"]}, {}, "is not a scope"),
        (
            {"type": "client_credentials", **CLIENT, "metadata": True},
            {},
            "metadata: is only for type passthrough",
        ),
        ({"type": "token_exchange", **CLIENT}, {}, "which only core.auth.oauth accepts"),
        (
            {"type": "passthrough"},
            {"static_headers": {"authorization": "Bearer x"}},
            "static_headers: contains Authorization",
        ),
        (
            {"type": "passthrough"},
            {"client_headers": {"passthrough": ["Authorization"]}},
            "client_headers: contains Authorization",
        ),
        (
            {"type": "passthrough"},
            {"transport": "stdio", "command": "x", "url": None},
            "type: is not for the transport stdio",
        ),
        ({"type": "passthrough", "metadata": True}, {}, "public_base_url: is required"),
        ({"type": "passthrough", "resource": "https://up.example"}, {}, "resource: needs metadata: true"),
    ],
)
def test_sections_that_are_refused(
    file: Path, auth: dict[str, Any], upstream: dict[str, Any], sentence: str
) -> None:
    """Each sentence names the key and what to do."""
    assert sentence in refusal(file, written(auth, **upstream))


def test_clients_sign_in_with_one_server_only(file: Path) -> None:
    """The metadata of a mount name the adapter's authorization server or the upstream's, not both."""
    core = {"public_base_url": "https://tools.example", "auth": OAUTH}
    told = refusal(file, written({"type": "passthrough", "metadata": True}, core))
    assert "metadata: is not allowed with core.auth" in told


def test_tokens_of_callers_are_exchanged_where_callers_have_any(file: Path) -> None:
    """With issuers that are trusted the type is complete, and each caller has a token of its own."""
    core = {"public_base_url": "https://tools.example", "auth": OAUTH}
    (server,) = loaded(file, written({"type": "token_exchange", **CLIENT}, core)).servers
    assert server.upstream.auth.per_caller


def test_passthrough_is_said_loudly(file: Path) -> None:
    """Whoever runs the upstream can act as the callers, and in plain http whoever listens."""
    settings = loaded(file, written({"type": "passthrough"}, url="http://up.example/mcp"))
    first, second = (str(each) for each in cautions(settings))
    assert (
        "servers[0].upstream.auth.type: passthrough sends the Authorization header of every caller" in first
    )
    assert "servers[0].upstream.url: begins with http://" in second
    assert list(cautions(loaded(file, written({"type": "client_credentials", **CLIENT})))) == []


@pytest.mark.parametrize("key", ["upstream", "missing_id", "scope"])
def test_callers_without_names_share_nothing_of_passthrough(file: Path, key: str) -> None:
    """Without core.auth all callers are one principal, so nothing may belong to the principal."""
    config = written({"type": "passthrough"}) | {"sessions": {key: "principal"}}
    assert f"sessions.{key}: " in refusal(file, config)
    loaded(file, config | {"core": {"auth": {"enabled": True, "token": "x" * 32}}})


def test_secrets_are_not_shown(file: Path) -> None:
    """Neither in the effective settings nor in a repr."""
    settings = loaded(file, written({"type": "client_credentials", **CLIENT}))
    assert "s3cret" not in str(masked(settings)) + repr(settings)
