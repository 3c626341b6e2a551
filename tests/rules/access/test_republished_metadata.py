"""An upstream's metadata and challenges, as clients of the mount see them."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.republished_metadata import renamed, republished

UPSTREAM = "https://up.example/mcp"
MOUNT = "https://tools.example/mcp/up"
PLACE = "https://tools.example/.well-known/oauth-protected-resource/mcp/up"
MEMBER = f'resource_metadata="{PLACE}"'


def document(**members: Any) -> bytes:
    found = {"resource": UPSTREAM, "authorization_servers": ["https://login.example"], **members}
    return orjson.dumps(found)


def test_resource_is_that_of_the_mount() -> None:
    """Members about the upstream's own URL stay away, such as a signature over all of it."""
    told = document(
        scopes_supported=["a"], resource_name="Up", signed_metadata="e30", jwks_uri="https://up.example/keys"
    )
    assert orjson.loads(republished(told, UPSTREAM, MOUNT)) == {
        "resource": MOUNT,
        "authorization_servers": ["https://login.example"],
        "scopes_supported": ["a"],
        "resource_name": "Up",
    }


def test_an_upstream_that_was_told_the_mount() -> None:
    """It names the mount itself, or the adapter as a whole; clients of the mount are told the mount."""
    for told in (MOUNT, "https://tools.example"):
        assert orjson.loads(republished(document(resource=told), UPSTREAM, MOUNT))["resource"] == MOUNT
    other = document(resource="https://tools.example/mcp/other")
    with pytest.raises(ValueError, match="another resource"):
        republished(other, UPSTREAM, MOUNT)
    named = republished(other, UPSTREAM, MOUNT, "https://tools.example/mcp/other")
    assert orjson.loads(named)["resource"] == MOUNT


def test_only_usable_authorization_servers_are_named() -> None:
    """A client is not sent to a place in the operator's network, nor to one without TLS."""
    servers = ["http://login.example", "https://10.0.0.1", "https://login.example", 7, "javascript:x"]
    told = orjson.loads(republished(document(authorization_servers=servers), UPSTREAM, MOUNT))
    assert told["authorization_servers"] == ["https://login.example"]


@pytest.mark.parametrize(
    "told",
    [b"", b"[]", document(resource="https://bank.example/mcp"), document(authorization_servers=[])],
)
def test_metadata_that_are_not_the_upstreams(told: bytes) -> None:
    """Nothing is published in the name of a stranger."""
    with pytest.raises(ValueError, match="metadata"):
        republished(told, UPSTREAM, MOUNT)


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        (None, f"Bearer {MEMBER}"),
        ("Bearer", f"Bearer {MEMBER}"),
        ('Bearer error="invalid_token"', f'Bearer {MEMBER}, error="invalid_token"'),
        ('bearer realm="a, Bearer b"', f'bearer {MEMBER}, realm="a, Bearer b"'),
        ('Bearer resource_metadata="https://x/", scope="a"', f'Bearer {MEMBER}, scope="a"'),
        ("Bearer resource_metadata=https://x/y, a=b", f"Bearer {MEMBER}, a=b"),
        ('Basic realm="a"', f'Basic realm="a", Bearer {MEMBER}'),
        ('Basic realm="a", Bearer', f'Basic realm="a", Bearer {MEMBER}'),
        ("Bearer, Negotiate", f"Bearer {MEMBER}, Negotiate"),
        (
            'Bearer resource_metadata="https://x/\\"y", resource_metadata = "z"',
            f"Bearer {MEMBER}, {MEMBER}",
        ),
    ],
)
def test_challenge_names_the_metadata_of_the_mount(challenge: str | None, expected: str) -> None:
    """What else it says stays; of other schemes, too."""
    assert renamed(challenge, PLACE) == expected


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=120))
def test_no_other_metadata_are_named(challenge: str) -> None:
    """Whatever an upstream sends, each quoted place in the result is that of the mount."""
    places = re.findall(r'resource_metadata="([^"]*)"', renamed(challenge, PLACE))
    assert places and set(places) == {PLACE}
