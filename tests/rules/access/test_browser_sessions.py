"""People who signed in with their browser, by pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.browser_sessions import (
    BrowserSession,
    RoleRules,
    cookie_of,
    decode_session,
    encode_session,
    is_own_page,
    is_place,
    origin_of,
    set_cookie,
)

ADA = BrowserSession("ada@https://a.example:1", frozenset({"mcp", "admin"}), {"groups": ["staff"]}, 1000.0)
MARK = "X-Mark"


def test_a_session_is_read_until_it_expires() -> None:
    """The same person comes back, and nobody afterwards."""
    assert decode_session(encode_session(ADA), 999.0) == ADA
    assert decode_session(encode_session(ADA), 1000.0) is None


# --- roles ------------------------------------------------------------------------------------------------------

TERMS = RoleRules(
    {"scope": {"admin"}, "groups": {"operators"}, "realm.roles": {"boss"}},
    {"scope": {"read"}, "groups": {"staff"}},
)


@pytest.mark.parametrize(
    ("scopes", "claims", "role"),
    [
        ({"admin"}, {}, "operator"),
        ({"mcp"}, {"groups": ["x", "operators"]}, "operator"),
        ({"mcp"}, {"groups": "operators"}, "operator"),
        ({"mcp"}, {"realm": {"roles": ["boss"]}}, "operator"),
        ({"read"}, {}, "viewer"),
        ({"mcp"}, {"groups": ["staff"]}, "viewer"),
        ({"mcp"}, {"groups": {"operators": True}}, None),
        ({"mcp"}, {"groups": ["operators of another thing"]}, None),
        (set(), {"realm": ["roles"]}, None),
    ],
)
def test_scopes_and_claims_make_roles(scopes: set[str], claims: dict[str, object], role: str | None) -> None:
    """One scope or one value of a claim is enough, and nothing that only resembles it."""
    assert TERMS.role_of(frozenset(scopes), claims) == role


def test_without_terms_everybody_is_a_viewer() -> None:
    """Nobody becomes an operator by themselves."""
    assert RoleRules().role_of(frozenset({"admin"}), {"groups": ["operators"]}) == "viewer"


def test_what_is_needed_is_named() -> None:
    """Each right once, those for viewers first; of many only some."""
    terms = RoleRules({"scope": {"admin"}, "groups": {"ops"}}, {"groups": {"staff"}})
    assert terms.needed == "staff in groups or the scope admin or ops in groups"
    many = RoleRules(viewers={"scope": set(map(str, range(100)))})
    assert many.needed.endswith(" or another right") and len(many.needed) < 200


# --- cookies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("a=1", "1"),
        ("b=2; a=1", "1"),
        ("b=2;a=1=2", "1=2"),
        ("b=2", None),
        ("aa=1", None),
        ("a=1; a=2", None),
        ("a=1;  a=1", None),
        ("", None),
        (None, None),
    ],
)
def test_a_cookie_counts_only_once(field: str | None, value: str | None) -> None:
    """A second one of its name may be a stranger's, so then none counts."""
    assert cookie_of(field, "a") == value


def test_no_script_reads_a_cookie() -> None:
    """It is sent to its path alone, and where there is TLS by nothing else."""
    plain = set_cookie("a", "1", "/explorer", seconds=60, secure=False)
    assert plain == "a=1; Path=/explorer; Max-Age=60; HttpOnly; SameSite=Lax"
    assert set_cookie("a", "1", "/explorer", seconds=60, secure=True) == f"{plain}; Secure"


@pytest.mark.parametrize(
    ("fields", "own"),
    [
        ({MARK: "x"}, True),
        ({MARK: "x", "Sec-Fetch-Site": "same-origin", "Origin": "https://a.example"}, True),
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({MARK: "x", "Sec-Fetch-Site": "same-site"}, False),
        ({MARK: "x", "Sec-Fetch-Site": "cross-site"}, False),
        ({MARK: "x", "Sec-Fetch-Site": "none"}, False),
        ({MARK: "x", "Origin": "https://b.example"}, False),
        ({MARK: "x", "Origin": "null"}, False),
        ({MARK: "x", "Sec-Fetch-Site": "same-origin", "Origin": "https://a.example:8443"}, False),
    ],
)
def test_a_cookie_is_for_scripts_of_our_own_pages(fields: dict[str, str], own: bool) -> None:
    """A form, a picture, a neighbour's script or a sandboxed frame does nothing with it."""
    assert is_own_page(fields, "https://a.example/tools", MARK) is own


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example:443/x", "https://a.example"),
        ("http://A.example:80", "http://a.example"),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_written_as_browsers_do(url: str, origin: str) -> None:
    """Without the port of its scheme, in lower case."""
    assert origin_of(url) == origin


PATHS = ("/explorer", "/authorize")


@pytest.mark.parametrize("place", ["/explorer", "/explorer/", "/explorer/#/server/a", "/authorize/a?x=1"])
def test_a_browser_returns_to_our_pages(place: str) -> None:
    """With a query or a fragment of the page's own."""
    assert is_place(place, PATHS)


@pytest.mark.parametrize(
    "place",
    [
        "",
        "https://evil.example/explorer",
        "//evil.example/explorer",
        "/explorer//evil.example",
        "/explorer/../mcp",
        "/explorer\\@evil.example",
        "/explorers",
        "/mcp",
        "/explorer/\r\nSet-Cookie: a=1",
        "/explorer/é",
        "/explorer/" + "x" * 600,
    ],
)
def test_a_browser_is_sent_nowhere_else(place: str) -> None:
    """Neither to another site nor to another part of this one, and in one line."""
    assert not is_place(place, PATHS)


@given(st.text())
def test_any_place_is_judged(place: str) -> None:
    """Each text is a place below ours, or none."""
    assert not is_place(place, PATHS) or place.startswith(PATHS)
