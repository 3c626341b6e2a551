"""Metadata of issuers: its places, and the URLs in it that may be asked."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.authorization_servers import (
    read_metadata,
    server_metadata_urls,
)
from adapter.rules.access.network_addresses import LONGEST_URL, may_be_asked

LOGIN = "https://login.example"
LOCAL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("issuer", "paths"),
    [
        (LOGIN, ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (f"{LOGIN}/", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            f"{LOGIN}/a/b/",
            [
                "/.well-known/oauth-authorization-server/a/b",
                "/.well-known/openid-configuration/a/b",
                "/a/b/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_the_places_are_those_of_the_specifications(issuer: str, paths: list[str]) -> None:
    """RFC 8414 §3.1 and §5, OpenID Connect Discovery 1.0 §4."""
    assert list(server_metadata_urls(issuer)) == [LOGIN + path for path in paths]


@pytest.mark.parametrize(
    ("url", "issuer", "allowed"),
    [
        ("https://keys.example/a?b=c", LOGIN, True),
        ("https://keys.example/a", LOCAL, True),
        ("http://keys.example/a", LOGIN, False),
        ("http://keys.example/a", LOCAL, False),
        ("http://127.0.0.1/a", LOGIN, False),
        ("http://localhost:1/a", LOGIN, False),
        ("http://localhost:1/a", LOCAL, True),
        ("http://[::1]/a", LOCAL, True),
        ("http://127.0.0.1.example/", LOCAL, False),
        ("http://169.254.169.254/latest", LOCAL, False),
        ("https://ann:secret@keys.example/", LOGIN, False),
        ("https://keys.example/#a", LOGIN, False),
        ("https:///a", LOGIN, False),
        ("https://keys.example:x/", LOGIN, False),
        ("https://keys.example:0/", LOGIN, False),
        ("https://[::1/", LOGIN, False),
        ("https://keys.example/\r\nHost: a", LOGIN, False),
        ("https://keys.example\\@127.0.0.1/", LOGIN, False),
        ("https://keys.exämple/", LOGIN, False),
        ('https://keys.example/"', LOGIN, False),
        ("https://keys.example/<a>", LOGIN, False),
        ("file:///etc/passwd", LOGIN, False),
        ("", LOGIN, False),
        ("https://keys.example/" + "a" * LONGEST_URL, LOGIN, False),
    ],
)
def test_an_issuer_cannot_have_anything_asked(url: str, issuer: str, allowed: bool) -> None:
    """Only what is encrypted, or on the machine of an issuer that is on this machine itself."""
    assert may_be_asked(url, issuer) is allowed


@given(st.text())
def test_any_text_can_be_judged(url: str) -> None:
    """Nothing in it raises, and it never becomes plain http to another machine."""
    assert not (may_be_asked(url, LOGIN) and not url.lower().startswith("https://"))


def test_an_endpoint_that_is_missing_or_unusable_is_told() -> None:
    """By its name, without its value."""
    said = {"issuer": LOGIN, "token_endpoint": f"{LOGIN}/t", "jwks_uri": "http://inside/", "other": [1]}
    metadata = read_metadata(json.dumps(said).encode(), LOGIN)
    assert metadata.url("token_endpoint") == f"{LOGIN}/t"
    with pytest.raises(ValueError, match="the jwks_uri of the issuer's metadata is not a usable URL"):
        metadata.url("jwks_uri")
    for name in ("other", "missing"):
        with pytest.raises(ValueError, match=f"the issuer's metadata has no {name}"):
            metadata.url(name)
