"""``core.auth.oauth``: what holds unless it is said, what is refused, and what ``check`` warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.pipeline.key_set import OF_PUBLIC_KEYS
from adapter.settings.auth import ALGORITHMS
from adapter.settings.cautions import cautions
from adapter.settings.root import Settings
from tests.settings.loading import loaded, proxied, refusal

LOGIN = "https://login.example"
BASE = "https://tools.example"
ENDPOINT = {"url": f"{LOGIN}/introspect", "client_id": "adapter", "client_secret": "s"}


def written(base: str | None = BASE, auth: dict[str, Any] | None = None, **oauth: Any) -> dict[str, Any]:
    """A file with one issuer, unless others are given."""
    section = {"issuers": [{"issuer": LOGIN}], **oauth}
    return proxied({}, core={"public_base_url": base, "auth": {"oauth": section, **(auth or {})}})


def warnings(settings: Settings) -> list[str]:
    return [str(caution) for caution in cautions(settings)]


def test_an_issuer_is_all_that_is_needed(file: Path) -> None:
    """Tokens are for the mount that is called, and callers without one are refused from then on."""
    settings = loaded(file, written())
    auth = settings.core.auth
    assert auth.enabled
    assert auth.oauth is not None
    (issuer,) = auth.oauth.issuers
    assert (issuer.issuer, issuer.audience, issuer.algorithms) == (LOGIN, None, ["RS256", "ES256"])
    assert (issuer.principal_claim, issuer.required_scopes, issuer.jwks_url) == ("sub", [], None)
    assert (auth.oauth.introspection, auth.oauth.leeway_seconds) == (None, 30)
    assert warnings(settings) == []


def test_it_can_be_switched_off_and_stand_beside_static_tokens(file: Path) -> None:
    """Only whoever says so switches it off."""
    assert not loaded(file, written(auth={"enabled": False})).core.auth.enabled
    auth = loaded(file, written(auth={"token": "0123456789abcdef"})).core.auth
    assert auth.enabled
    assert auth.token is not None


def test_lists_may_come_as_one_text(file: Path) -> None:
    """As variables have them."""
    entry = {"issuer": LOGIN, "algorithms": "PS256, EdDSA", "required_scopes": "mcp, files"}
    oauth = loaded(file, written(issuers=[entry])).core.auth.oauth
    assert oauth is not None
    assert oauth.issuers[0].algorithms == ["PS256", "EdDSA"]
    assert oauth.issuers[0].required_scopes == ["mcp", "files"]


def test_opaque_tokens_are_asked_about(file: Path) -> None:
    """An answer holds for a minute unless the section says otherwise."""
    oauth = loaded(file, written(introspection=ENDPOINT)).core.auth.oauth
    assert oauth is not None and oauth.introspection is not None
    assert oauth.introspection.cache_seconds == 60


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "[::1]:9"])
def test_this_machine_needs_no_tls(file: Path, host: str) -> None:
    """For tests, and for an issuer beside the adapter."""
    oauth = loaded(file, written(issuers=[{"issuer": f"http://{host}/realm"}])).core.auth.oauth
    assert oauth is not None
    assert oauth.issuers[0].issuer == f"http://{host}/realm"


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"issuer": "login.example"}, "must be an http:// or https:// URL with a host"),
        (
            {"issuer": "http://login.example"},
            "must begin with https://; http:// is only for loopback addresses",
        ),
        ({"issuer": "http://127.0.0.1.example"}, "must begin with https://"),
        ({"issuer": "http://127.0.0.1@login.example"}, "must be a URL without user and fragment"),
        ({"issuer": f"{LOGIN}#f"}, "must be a URL without user and fragment"),
        ({"issuer": f"{LOGIN}?tenant=a"}, "must be a URL without query"),
        ({"issuer": f"{LOGIN}/{'a' * 1024}"}, "must have at most 1024 characters"),
        ({"issuer": LOGIN, "jwks_url": "http://login.example/keys"}, "must begin with https://"),
        ({"issuer": LOGIN, "algorithms": ["RS256", "HS256"]}, "HS256 is not allowed: an issuer's tokens are"),
        ({"issuer": LOGIN, "algorithms": ["none"]}, "none is not allowed"),
        ({"issuer": LOGIN, "algorithms": ["RS1"]}, "RS1 is not a known algorithm: use some of RS256, "),
        ({"issuer": LOGIN, "algorithms": []}, "must not be empty"),
        ({"issuer": LOGIN, "required_scopes": ["a b"]}, "'a b' is not a scope: it must have"),
        ({"issuer": LOGIN, "required_scopes": ['a"']}, "is not a scope: it must have"),
        ({"issuer": LOGIN, "principal_claim": " "}, "must not be empty"),
        ({"issuer": LOGIN, "scopes": ["a"]}, "is not a known key; the nearest is required_scopes"),
    ],
)
def test_an_issuer_that_cannot_be_meant_is_refused(file: Path, entry: dict[str, Any], sentence: str) -> None:
    """The sentence says what to write instead."""
    said = refusal(file, written(issuers=[entry]))
    assert said.startswith("core.auth.oauth.issuers[0].")
    assert sentence in said


@pytest.mark.parametrize(
    ("oauth", "sentence"),
    [
        ({"issuers": []}, "core.auth.oauth.issuers: must not be empty"),
        (
            {"issuers": [{"issuer": LOGIN}, {"issuer": LOGIN, "audience": "b"}]},
            "core.auth.oauth: issuers[1] has the same issuer as issuers[0]",
        ),
        (
            {"leeway_seconds": 301},
            "core.auth.oauth.leeway_seconds: input should be less than or equal to 300",
        ),
        ({"introspection": {**ENDPOINT, "cache_seconds": 0}}, "cache_seconds: input should be greater than"),
        ({"introspection": {**ENDPOINT, "client_secret": " "}}, "client_secret: must not be empty"),
        ({"introspection": {**ENDPOINT, "url": "http://login.example"}}, "url: must begin with https://"),
    ],
)
def test_a_section_that_cannot_be_meant_is_refused(file: Path, oauth: dict[str, Any], sentence: str) -> None:
    """As a whole, or in its introspection."""
    assert sentence in refusal(file, written(**oauth))


def test_tokens_need_to_know_for_what_they_are(file: Path) -> None:
    """A URL out of the request's Host would be the choice of whoever sends the request."""
    assert refusal(file, written(None)) == (
        "core.public_base_url: is required with core.auth.oauth: tokens are issued for the URLs of the mounts, "
        "which begin with it"
    )


def test_what_is_easy_to_overlook_is_warned_of(file: Path) -> None:
    """Names that pass on to others, and tokens that everybody on the network can read."""
    entry = {"issuer": LOGIN, "principal_claim": "email"}
    assert warnings(loaded(file, written("http://tools.example", issuers=[entry]))) == [
        "core.public_base_url: begins with http://, so access tokens cross the network unencrypted: use https://",
        "core.auth.oauth.issuers[0].principal_claim: email can change, or pass to another person, who then owns "
        "the sessions and files: use sub unless your issuer promises otherwise",
    ]


def test_the_algorithms_are_those_that_keys_are_for() -> None:
    """A name that no key fits would refuse every token."""
    assert set(ALGORITHMS) == set(OF_PUBLIC_KEYS)


def test_the_secret_is_not_shown(file: Path) -> None:
    """Neither by a repr nor in a refusal."""
    settings = loaded(file, written(introspection={**ENDPOINT, "client_secret": "hidden"}))
    assert "hidden" not in repr(settings)
