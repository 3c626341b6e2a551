"""Protected resources: their metadata, their challenges, and the access tokens that are for them."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.resources import (
    ANY,
    CONSOLE,
    WELL_KNOWN,
    ProtectedResource,
    canonical,
    challenge,
    metadata_paths,
    refusal_of,
    renamed,
    republished,
    resources_below,
)
from adapter.rules.access.token_claims import VerifiedToken

BASE = "https://tools.example.org"
RESOURCES = resources_below(BASE, {"a": "/mcp/a", "ab": "/mcp/ab", CONSOLE: "/console"}, ("mcp",))
QUOTED = r'"[\x20-\x21\x23-\x5b\x5d-\x7e]*"'
CHALLENGE = re.compile(rf"Bearer [a-z_]+={QUOTED}(, [a-z_]+={QUOTED})*")


def token(*audiences: str, scopes: tuple[str, ...] = ("mcp",), **more: Any) -> VerifiedToken:
    return VerifiedToken(
        "ann@issuer:1", frozenset(audiences), frozenset(scopes), {}, 2e9, required_scopes=("mcp",), **more
    )


# --- metadata ---------------------------------------------------------------------------------------------------


def test_the_metadata_of_a_resource() -> None:
    """RFC 9728 §2, with the members that MCP clients read."""
    assert RESOURCES["a"].metadata(["https://login.example.org"], "https://example.org/docs") == {
        "resource": "https://tools.example.org/mcp/a",
        "authorization_servers": ["https://login.example.org"],
        "scopes_supported": ["mcp"],
        "bearer_methods_supported": ["header"],
        "resource_name": "a",
        "resource_documentation": "https://example.org/docs",
    }


def test_no_scopes_and_no_documentation_are_left_out() -> None:
    """A member without a value is omitted (RFC 9728 §3.2)."""
    plain = resources_below(BASE, {"a": "/a"}, ())["a"].metadata(["https://login.example.org"])
    assert "scopes_supported" not in plain and "resource_documentation" not in plain


@pytest.mark.parametrize(
    ("base", "path", "url", "metadata_url"),
    [
        (BASE, "/mcp", f"{BASE}/mcp", f"{BASE}/.well-known/oauth-protected-resource/mcp"),
        (f"{BASE}/", "/mcp", f"{BASE}/mcp", f"{BASE}/.well-known/oauth-protected-resource/mcp"),
        (
            f"{BASE}:8443/ad/apter",
            "/mcp",
            f"{BASE}:8443/ad/apter/mcp",
            f"{BASE}:8443/.well-known/oauth-protected-resource/ad/apter/mcp",
        ),
        (BASE, '/é"x', f"{BASE}/%C3%A9%22x", f"{BASE}/.well-known/oauth-protected-resource/%C3%A9%22x"),
    ],
)
def test_the_well_known_part_stands_before_the_path(
    base: str, path: str, url: str, metadata_url: str
) -> None:
    """RFC 9728 §3.1, also where the public URL of the adapter has a path; nothing in it ends a quoted string."""
    found = resources_below(base, {"a": path}, ())["a"]
    assert (found.url, found.metadata_url) == (url, metadata_url)


@pytest.mark.parametrize(
    ("base", "servers", "paths"),
    [
        (BASE, {"a": "/a"}, {"": "a", "/a": "a", "/console": CONSOLE}),
        (
            f"{BASE}/x%20y",
            {"a": "/a"},
            {
                **{"": "a", "/a": "a", "/console": CONSOLE},
                **{"/x y": "a", "/x y/a": "a", "/x y/console": CONSOLE},
            },
        ),
        (BASE, {"a": "/a", "b": "/b/é"}, {"/a": "a", "/b/é": "b", "/console": CONSOLE}),
        (
            f"{BASE}/a",
            {"a": "/b", "b": "/a/b"},
            {**{"/a/b": "a", "/b": "a", "/a/a/b": "b"}, **{"/console": CONSOLE, "/a/console": CONSOLE}},
        ),
    ],
)
def test_the_paths_of_the_metadata(base: str, servers: dict[str, str], paths: dict[str, str]) -> None:
    """With the path of the base and without; the only server also where nothing follows. What was told counts most."""
    resources = resources_below(base, {**servers, CONSOLE: "/console"}, ())
    found = metadata_paths(base, resources)
    assert found == {WELL_KNOWN + path: resources[name] for path, name in paths.items()}


# --- audiences --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "audience",
    [
        "https://tools.example.org/mcp/a",
        "https://tools.example.org/mcp/a/",
        "HTTPS://Tools.Example.ORG:443/mcp/%61",
    ],
)
def test_spellings_of_one_url_are_one_audience(audience: str) -> None:
    """RFC 3986 §6.2: case of scheme and host, default ports and needless encodings mean nothing."""
    assert refusal_of(token(audience), RESOURCES["a"]) is None
    assert refusal_of(token("other", audience), RESOURCES["a"]) is None
    assert refusal_of(token(audience), RESOURCES[ANY]) is None


@pytest.mark.parametrize(
    "audience",
    [
        "https://tools.example.org/mcp/ab",
        "https://tools.example.org/mcp",
        "https://tools.example.org",
        "https://tools.example.org/mcp/a/b",
        "https://tools.example.org/mcp/a?x",
        "https://tools.example.org/mcp/a#x",
        "https://tools.example.org/mcp/b/../a",
        "https://tools.example.org/MCP/a",
        "https://tools.example.org/mcp%2Fa",
        "https://tools.example.org:8443/mcp/a",
        "http://tools.example.org/mcp/a",
        "https://tools.example.org.evil.org/mcp/a",
        "https://evil.org/https://tools.example.org/mcp/a",
        "https://tools.example.org@evil.org/mcp/a",
        "https://user@tools.example.org/mcp/a",
        "https://tools.example.org\\.evil.org/mcp/a",
        " https://tools.example.org/mcp/a",
        "https://tools.example.org/mcp/a\n",
        "tools.example.org/mcp/a",
        "/mcp/a",
        "a",
        "*",
        "",
    ],
)
def test_everything_else_is_another_audience(audience: str) -> None:
    """No beginning, no end and no likeness of the URL counts."""
    assert refusal_of(token(audience), RESOURCES["a"]) == "audience"


def test_a_token_without_an_audience_is_for_nothing() -> None:
    """Whoever it was meant for, it was not said."""
    assert refusal_of(token(), RESOURCES["a"]) == refusal_of(token(), RESOURCES[ANY]) == "audience"


def test_the_audience_of_the_settings_takes_the_place_of_the_url() -> None:
    """It is compared letter by letter, as it need not be a URL."""
    assert refusal_of(token("api://tools", audience="api://tools"), RESOURCES["a"]) is None
    for other in ("api://tools/", "API://tools", RESOURCES["a"].url):
        assert refusal_of(token(other, audience="api://tools"), RESOURCES["a"]) == "audience"


def test_every_required_scope_is_needed() -> None:
    """More scopes do no harm; another audience is told first, for no scope would help there."""
    url = RESOURCES["a"].url
    assert refusal_of(token(url, scopes=("mcp", "more")), RESOURCES["a"]) is None
    assert refusal_of(token(url, scopes=("mcp2", "m", "mcp:tools")), RESOURCES["a"]) == "scope"
    assert refusal_of(token("other", scopes=()), RESOURCES["a"]) == "audience"


@pytest.mark.parametrize("url", ["http\u017f://tools.example/mcp", "HTTP\u017f://tools.example:443"])
def test_a_scheme_is_spelled_in_ascii(url: str) -> None:
    """Unicode has other letters that count as an s where case does not."""
    assert canonical(url) == url


@given(
    st.text() | st.from_regex(r"https?://[a-zA-Z.%:\[\]0-9@]{1,9}(/[a-zA-Z.%0-9/?#é]{0,9})?", fullmatch=True)
)
def test_a_canonical_url_stays_as_it_is(url: str) -> None:
    """Whatever comes, it is returned in one form and nothing is raised."""
    assert canonical(canonical(url)) == canonical(url)


# --- challenges -------------------------------------------------------------------------------------------------


def test_a_challenge_names_metadata_scopes_and_error() -> None:
    """RFC 6750 §3 and RFC 9728 §5.1: without a token there is no error to tell."""
    resource = RESOURCES["a"]
    at = 'resource_metadata="https://tools.example.org/.well-known/oauth-protected-resource/mcp/a"'
    assert challenge(resource, ("mcp", "more")) == f'Bearer {at}, scope="mcp more"'
    assert challenge(resource, (), "invalid_token", "It has expired.") == (
        f'Bearer {at}, error="invalid_token", error_description="It has expired."'
    )


@given(st.text(), st.lists(st.text()), st.text())
def test_nothing_ends_a_quoted_string(url: str, scopes: list[str], description: str) -> None:
    """A path, a scope or a sentence with quotes and line ends adds no parameter and no header."""
    resource = ProtectedResource("a", BASE, "x" + url, (), frozenset())
    assert CHALLENGE.fullmatch(challenge(resource, scopes, "invalid_token", description))


# --- an upstream's metadata and challenges, as clients of the mount see them -----------------------------------


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
    "told", [b"", b"[]", document(resource="https://bank.example/mcp"), document(authorization_servers=[])]
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
        ('Bearer resource_metadata="https://x/\\"y", resource_metadata = "z"', f"Bearer {MEMBER}, {MEMBER}"),
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
