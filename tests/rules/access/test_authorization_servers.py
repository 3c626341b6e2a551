"""Documents of authorization servers and upstreams: all that is believed of them."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.authorization_servers import (
    Challenge,
    ServerMetadata,
    covers,
    is_usable_url,
    read_metadata,
    read_resource_metadata,
    require_code_grant,
    resource_metadata_urls,
    same_origin,
    scope_tokens,
    server_metadata_urls,
)
from adapter.rules.access.host_and_origin_check import LONGEST_URL, is_loopback_host

ISSUER = "https://login.example"
UPSTREAM = "https://tools.example/mcp"
LOCAL = "http://127.0.0.1:9"


def read_server_metadata(document: bytes, issuer: str, near: str) -> ServerMetadata:
    found = read_metadata(document, issuer, near)
    require_code_grant(found)
    return found


def server(**members: Any) -> bytes:
    document = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "code_challenge_methods_supported": ["S256"],
        **members,
    }
    return orjson.dumps({key: value for key, value in document.items() if value is not None})


def resource(**members: Any) -> bytes:
    return orjson.dumps({"resource": UPSTREAM, "authorization_servers": [ISSUER], **members})


def test_places_of_metadata() -> None:
    """They are tried in MCP's order."""
    assert server_metadata_urls("https://a.example/t/1") == (
        "https://a.example/.well-known/oauth-authorization-server/t/1",
        "https://a.example/.well-known/openid-configuration/t/1",
        "https://a.example/t/1/.well-known/openid-configuration",
    )
    assert len(server_metadata_urls(ISSUER)) == 2
    assert resource_metadata_urls(UPSTREAM) == (
        "https://tools.example/.well-known/oauth-protected-resource/mcp",
        "https://tools.example/.well-known/oauth-protected-resource",
    )
    assert len(resource_metadata_urls("https://tools.example")) == 1


@pytest.mark.parametrize("near", [UPSTREAM, LOCAL])
@pytest.mark.parametrize(
    "url",
    [
        *("http://login.example/", "http://127.0.0.1.example/", "http://169.254.169.254/latest"),
        *("https://10.0.0.1/", "https://[fd00::1]/", "https://[fe80::1%25eth0]/"),
        *("https://user@login.example/", "https://ann:secret@login.example/", "https://login.example/#part"),
        *("https://login.example/a b", 'https://login.example/"', "https://login.example/<a>"),
        *(
            "https://login.example\\@127.0.0.1/",
            "https://login.example/\r\nHost: a",
            "https://login.exämple/",
        ),
        *("", "https:///path", "https://[::1/", "https://login.example:99999/"),
        *("https://login.example:x/", "https://login.example:0/", "file:///etc/passwd"),
        *("javascript:alert(1)", "https://login.example/" + "a" * LONGEST_URL),
    ],
)
def test_no_stranger_has_these_asked(url: str, near: str) -> None:
    """Nobody leads to neighbours (see ``network_kind``), out of HTTPS, or to what is no URL."""
    assert not is_usable_url(url, near)


@pytest.mark.parametrize(
    "url",
    [
        *("https://localhost/", "https://2130706433/", "https://localhost./", "https://a.localhost./"),
        *("http://127.0.0.1/a", "http://localhost:1/a"),
    ],
)
def test_a_public_server_has_nothing_asked_on_this_machine(url: str) -> None:
    """In no spelling."""
    assert not is_usable_url(url, UPSTREAM)


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("https://login.example/authorize?b=c", UPSTREAM),
        ("https://login.example/authorize", LOCAL),
        ("http://localhost:1/a", LOCAL),
        ("http://[::1]/a", LOCAL),
        ("http://127.0.0.1:9000/token", "http://localhost:8000/mcp"),
        ("http://mcp.internal:9000/token", "http://mcp.internal:8000/mcp"),
        ("https://10.0.0.5/token", "https://10.0.0.5/mcp"),
    ],
)
def test_neighbours_name_their_own(url: str, near: str) -> None:
    """An upstream may name its own host, and one on this machine others here."""
    assert is_usable_url(url, near)


@given(st.text())
def test_no_text_breaks_the_check(text: str) -> None:
    """Any text is judged; none raises."""
    assert not is_usable_url(text, UPSTREAM) or text.lower().startswith("https://")
    is_usable_url(f"https://{text}", UPSTREAM)
    covers(f"https://{text}", UPSTREAM)


def test_loopback_names() -> None:
    """Names and addresses of this machine."""
    assert is_loopback_host("localhost")
    assert is_loopback_host("a.localhost")
    assert is_loopback_host("127.8.8.8")
    assert not is_loopback_host("login.example")
    assert not is_loopback_host(None)


def test_origins() -> None:
    """A port that is written out is the same as the one that is meant."""
    assert same_origin("https://a.example/x", "https://a.example:443/y")
    assert not same_origin("https://a.example", "http://a.example")


def test_a_server_is_read() -> None:
    """The members that are used, and no others."""
    found = read_server_metadata(
        server(
            registration_endpoint=f"{ISSUER}/register",
            revocation_endpoint="http://elsewhere.example/",
            authorization_response_iss_parameter_supported=True,
            client_id_metadata_document_supported=True,
            token_endpoint_auth_methods_supported=["none", 5],
        ),
        ISSUER,
        UPSTREAM,
    )
    assert found.url_if_any("registration_endpoint") == f"{ISSUER}/register"
    assert found.url_if_any("revocation_endpoint") is None
    assert found.says("authorization_response_iss_parameter_supported")
    assert found.says("client_id_metadata_document_supported")
    assert found.names("token_endpoint_auth_methods_supported") == ("none",)


@pytest.mark.parametrize(
    "members",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"code_challenge_methods_supported": None},
        {"code_challenge_methods_supported": ["plain"]},
        {"response_types_supported": ["token"]},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint": "http://127.0.0.1/token"},
        {"token_endpoint": 5},
    ],
)
def test_a_server_that_cannot_be_trusted(members: dict[str, Any]) -> None:
    """Another issuer's document, one without PKCE, and one that leads elsewhere are refused."""
    with pytest.raises(ValueError, match=r"authorization server|names another issuer|issuer's metadata"):
        read_server_metadata(server(**members), ISSUER, UPSTREAM)


def test_a_server_that_does_not_speak_of_pkce() -> None:
    """The refusal names the settings with which its metadata is not needed; other refusals name none."""
    keys = "issuer, authorization_endpoint, token_endpoint and client_id in servers[].upstream.auth"
    with pytest.raises(ValueError, match="has no code_challenge_methods_supported") as absent:
        read_server_metadata(server(code_challenge_methods_supported=None), ISSUER, UPSTREAM)
    assert keys in str(absent.value)
    for offered in ([], ["plain"], "S256", {"S256": True}):
        with pytest.raises(ValueError, match="does not offer PKCE with S256") as refused:
            read_server_metadata(server(code_challenge_methods_supported=offered), ISSUER, UPSTREAM)
        assert "servers[]" not in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b"[]", b"{", b'"x"', b"null"),
        b'{"scopes_supported": [' + b"1," * 5000 + b"1]}",
        b'{"scopes_supported": ' + b"[" * 40 + b"]" * 40 + b"}",
    ],
)
def test_what_is_no_document(document: bytes) -> None:
    """Anything but a JSON object is refused, and one that is too large or too deep."""
    with pytest.raises(ValueError, match="the document"):
        read_server_metadata(document, ISSUER, UPSTREAM)
    with pytest.raises(ValueError, match="metadata"):
        read_resource_metadata(document, UPSTREAM)


def test_a_resource_is_read() -> None:
    """Servers that may be asked, and scopes that can be sent."""
    found = read_resource_metadata(
        resource(
            authorization_servers=["http://10.0.0.1", ISSUER, f"{ISSUER}/?x=1"],
            scopes_supported=["a", 'b"', "a"],
        ),
        UPSTREAM,
    )
    assert found.servers == (ISSUER,)
    assert found.scopes == ("a",)


@pytest.mark.parametrize(
    "members",
    [
        {"resource": "https://other.example/mcp"},
        {"resource": "https://tools.example/mcp2"},
        {"resource": "https://tools.example/m"},
        {"resource": None},
        {"authorization_servers": []},
        {"authorization_servers": ["https://127.0.0.1"]},
        {"authorization_servers": None},
    ],
)
def test_a_resource_of_somebody_else(members: dict[str, Any]) -> None:
    """Audience confusion: tokens are asked for this upstream, and for no other name."""
    with pytest.raises(ValueError, match="upstream"):
        read_resource_metadata(resource(**members), UPSTREAM)


def test_names_above_an_endpoint() -> None:
    """A resource may be the whole host, or a folder on the way."""
    assert covers("https://tools.example", UPSTREAM)
    assert covers("https://tools.example/mcp/", UPSTREAM)
    assert not covers("https://tools.example/mcp?x=1", UPSTREAM)
    assert not covers("https://tools.example:444/mcp", UPSTREAM)
    assert not covers("https://[", UPSTREAM)


def test_a_server_that_was_told_its_address() -> None:
    """It names that address, and its metadata stands at the path of it; it is asked at the host that is known."""
    told = "https://public.example/notes/mcp"
    assert read_resource_metadata(resource(resource=told), UPSTREAM, told).resource == told
    assert read_resource_metadata(resource(), UPSTREAM, told).resource == UPSTREAM
    for other in ("https://public.example/mail/mcp", "https://evil.example/notes/mcp", ""):
        with pytest.raises(ValueError, match="another resource"):
            read_resource_metadata(resource(resource=other), UPSTREAM, told)
    known = "https://tools.example/.well-known/oauth-protected-resource"
    assert resource_metadata_urls(UPSTREAM, told) == (f"{known}/mcp", f"{known}/notes/mcp", known)
    assert resource_metadata_urls(UPSTREAM, "urn:notes") == (f"{known}/mcp", known)


def test_challenges_of_strangers() -> None:
    """Anything that is no parameter is left alone."""
    for value in (None, "", "Basic", 'Bearer scope="' + "a" * 5000, 'Bearer scope=""', "Bearer scope=a"):
        assert Challenge(value).scopes == ()
        assert Challenge(value).metadata is None


def test_scopes_that_can_be_sent() -> None:
    """RFC 6749's characters, each once, of a bounded length."""
    assert scope_tokens(("a", "b c", "", "a", "x" * 300, "é", "files:read")) == ("a", "files:read")


# --- metadata of issuers: its places, and the URLs in it -------------------------------------


@pytest.mark.parametrize(
    ("issuer", "paths"),
    [
        (ISSUER, ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (f"{ISSUER}/", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            f"{ISSUER}/a/b/",
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
    assert list(server_metadata_urls(issuer)) == [ISSUER + path for path in paths]


def test_an_endpoint_that_is_missing_or_unusable_is_told() -> None:
    """By its name, without its value."""
    said = {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/t", "jwks_uri": "http://inside/", "other": [1]}
    metadata = read_metadata(json.dumps(said).encode(), ISSUER)
    assert metadata.url("token_endpoint") == f"{ISSUER}/t"
    with pytest.raises(ValueError, match="the jwks_uri of the issuer's metadata is not a usable URL"):
        metadata.url("jwks_uri")
    for name in ("other", "missing"):
        with pytest.raises(ValueError, match=f"the issuer's metadata has no {name}"):
            metadata.url(name)
