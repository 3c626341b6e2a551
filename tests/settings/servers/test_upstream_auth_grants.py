"""The settings of upstreams whose callers authorize the adapter, and the contradictions in them."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.settings.cautions import cautions
from adapter.settings.consistency import inconsistencies
from adapter.settings.root import Settings

BASE = "https://tools.example"


def problems(auth: dict[str, Any], core: dict[str, Any] | None = None, **entry: Any) -> list[str]:
    upstream = {"url": "https://up.example/mcp", "auth": {"type": "authorization_code", **auth}}
    server = {"id": "a", "upstream": upstream, **entry}
    settings = Settings.model_validate({"core": core or {"public_base_url": BASE}, "servers": [server]})
    return [problem.path for problem in inconsistencies(settings)]


ENDPOINTS = {"authorization_endpoint": f"{BASE}/authorize", "token_endpoint": f"{BASE}/token"}


@pytest.mark.parametrize(
    "auth",
    [
        {},
        {"issuer": BASE},
        {"client_id": "x", "client_secret": "y", "client_authentication": "client_secret_post"},
        {**ENDPOINTS, "client_id": "x"},
        {"scopes": ["a"], "resource": "https://up.example"},
    ],
)
def test_settings_that_work(auth: dict[str, Any]) -> None:
    """Everything may be left to the upstream's metadata."""
    assert problems(auth) == []


@pytest.mark.parametrize(
    ("auth", "place"),
    [
        ({"token_endpoint": f"{BASE}/token", "client_id": "x"}, "authorization_endpoint"),
        ({"authorization_endpoint": f"{BASE}/authorize"}, "token_endpoint"),
        (ENDPOINTS, "client_id"),
        ({"client_secret": "x"}, "client_secret"),
        ({"client_id": "x", "client_authentication": "client_secret_post"}, "client_authentication"),
        (
            {"client_id": "x", "client_secret": "y", "client_authentication": "private_key_jwt"},
            "client_authentication",
        ),
        ({"audience": "x"}, "audience"),
    ],
)
def test_settings_that_contradict(auth: dict[str, Any], place: str) -> None:
    """Each names the key that is missing, or too much."""
    assert problems(auth) == [f"servers[0].upstream.auth.{place}"]


@pytest.mark.parametrize("core", [{"port": 1}, {"public_base_url": "http://tools.example"}])
def test_people_need_a_place(core: dict[str, Any]) -> None:
    """Links lead to the public URL, which must be https but on this machine."""
    assert problems({}, core) == ["core.public_base_url"]
    assert problems({}, {"public_base_url": "http://127.0.0.1:8932"}) == []


def test_the_pages_have_a_path_of_their_own() -> None:
    """No mount is below it."""
    assert problems({}, mount_path="/authorize/a") == ["servers[0].mount_path"]


def test_a_secret_cannot_be_short() -> None:
    """A key that follows from a word can be guessed."""
    with pytest.raises(ValueError, match="32 characters"):
        Settings.model_validate({"core": {"secret": "word"}, "servers": []})


def test_cautions() -> None:
    """The key beside what it seals, and a grant that is everybody's, are said."""
    upstream = {"url": "https://up.example/mcp", "auth": {"type": "authorization_code"}}
    tree: dict[str, Any] = {"core": {"public_base_url": BASE}, "servers": [{"id": "a", "upstream": upstream}]}
    said = [caution.path for caution in cautions(Settings.model_validate(tree))]
    assert said == ["core.secret", "servers[0].upstream.auth.type"]
    tree["core"] |= {"secret": "s" * 32, "auth": {"enabled": True, "token": "t" * 32}}
    assert list(cautions(Settings.model_validate(tree))) == []
