"""Headers of requests: what reaches an upstream, and above all what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.headers import ambiguous, missing, prefers, to_upstream

Fields = list[tuple[str, str]]


def _sent(
    headers: Fields,
    passthrough: tuple[str, ...] = (),
    static: Fields | None = None,
    withhold: tuple[str, ...] = (),
) -> Fields:
    return to_upstream(
        headers, passthrough=frozenset(passthrough), static=static or [], withhold=frozenset(withhold)
    )


def test_what_mcp_needs_goes_up_as_it_was_spelled() -> None:
    """Order, spelling and repeated fields are kept."""
    headers = [
        ("Accept", "application/json"),
        ("ACCEPT", "text/event-stream"),
        ("Accept-Encoding", "gzip"),
        ("content-type", "application/json"),
        ("Content-Encoding", "gzip"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "click"),
        ("Mcp-Param-Region", "eu"),
        ("Last-Event-ID", "7"),
        ("traceparent", "00-1"),
        ("tracestate", "a=b"),
        ("baggage", "c=d"),
    ]
    assert _sent(headers) == headers


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Cookie",
        "User-Agent",
        "X-Forwarded-For",
        "X-Mcp-Adapter-Auth-Token",
        "Origin",
        "Referer",
        "X-Anything",
        "Mcp-Unheard-Of",
    ],
)
def test_what_nobody_listed_stays_here(name: str) -> None:
    """Credentials, cookies and what tells of the client do not reach an upstream unasked."""
    assert _sent([(name, "value")]) == []


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Connection",
        "Keep-Alive",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Expect",
        "Content-Length",
        "Mcp-Session-Id",
    ],
)
def test_what_belongs_to_a_connection_never_passes(name: str) -> None:
    """Neither a passthrough list nor static headers make a hop's fields travel."""
    assert _sent([(name, "value")], passthrough=(name.lower(),), static=[(name, "static")]) == []


def test_passthrough_lets_a_field_pass() -> None:
    """What is listed passes, also a credential of the client's own."""
    headers = [("Authorization", "Bearer upstreams-own"), ("X-Tenant", "7")]
    assert _sent(headers, passthrough=("authorization", "x-tenant")) == headers


def test_the_adapters_own_credential_is_withheld_even_if_listed() -> None:
    """What carried the adapter's token stays here, whatever the configuration lets pass."""
    headers = [("Authorization", "Bearer adapters-own"), ("Accept", "*/*")]
    sent = _sent(headers, passthrough=("authorization",), withhold=("authorization",))
    assert sent == [("Accept", "*/*")]


def test_a_static_field_replaces_the_clients() -> None:
    """The client cannot speak over the operator, and the operator's credential is not withheld."""
    sent = _sent(
        [("authorization", "Bearer clients"), ("Accept", "*/*")],
        passthrough=("authorization",),
        static=[("Authorization", "Bearer operators")],
        withhold=("authorization",),
    )
    assert sent == [("Accept", "*/*"), ("Authorization", "Bearer operators")]


@pytest.mark.parametrize("first", [True, False], ids=["Connection first", "Connection last"])
def test_fields_named_by_connection_end_here(first: bool) -> None:
    """RFC 9110 §7.6.1: what Connection names is of this hop, wherever in the head it stands."""
    connection = [("Connection", "keep-alive, Traceparent ,x-tenant")]
    fields = [("traceparent", "00-1"), ("X-Tenant", "7"), ("Accept", "*/*")]
    headers = connection + fields if first else fields + connection
    assert _sent(headers, passthrough=("x-tenant",)) == [("Accept", "*/*")]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b"])
def test_a_value_that_could_split_a_message_is_dropped(value: str) -> None:
    """No way leads a line break into an upstream's request."""
    assert _sent([("Accept", value)], static=[("X-Static", value)]) == []


def test_a_name_that_could_split_a_message_is_dropped() -> None:
    """A prefix does not let the rest of a name be anything."""
    assert _sent([("Mcp-Param-\r\nX-Evil", "1")]) == []


def test_tabs_and_other_scripts_pass() -> None:
    """What is odd but legal in a value is kept."""
    headers = [("Baggage", "a\tb"), ("Mcp-Param-City", "Zürich"), ("Mcp-Name", "\udcff")]
    assert _sent(headers) == headers


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "content-type",
        "content-encoding",
        "last-event-id",
        "mcp-session-id",
        "mcp-name",
        "mcp-param-anything",
        "mcp-protocol-version",
        "origin",
        "x-own-token",
    ],
)
def test_what_decides_something_may_be_there_once(name: str) -> None:
    """Of two, the adapter and an upstream might each take another one."""
    assert ambiguous({"accept", name}, "x-own-token") == name


def test_lists_may_be_repeated() -> None:
    """Fields that are lists, or that nothing here decides by, may come several times."""
    assert ambiguous({"accept", "tracestate", "x-tenant", "cookie"}, "x-own-token") is None


def test_the_first_missing_header_is_named_as_it_was_configured() -> None:
    """Present is any spelling with something in it."""
    headers = [("x-tenant", "7"), ("X-Blank", "  ")]
    assert missing(["X-Tenant"], headers) is None
    assert missing(["X-Tenant", "X-Blank", "X-Absent"], headers) == "X-Blank"
    assert missing([], []) is None


_names = (
    st.sampled_from(["accept", "HOST", "Cookie", "connection", "mcp-param-a", "mcp-x", "x-ok"]) | st.text()
)
_fields = st.lists(st.tuples(_names, st.text()), max_size=12)


@given(_fields)
def test_nothing_is_invented_or_reordered(headers: Fields) -> None:
    """What leaves is a part of what came, in its order; no field changes on the way."""
    passed = _sent(headers, passthrough=("x-ok",))
    rest = iter(headers)
    assert all(field in rest for field in passed)
    assert not any(character in value for _, value in passed for character in "\r\n\x00")


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("application/json;q=0.5, TEXT/HTML ; q=0.6", True),
        ("text/html;q=0", False),
        ("text/html;q=x", False),
        ("text/html;q=0.5, application/json", False),
        ("*/*", False),
        ("", False),
        ("x," * 600 + "text/html", False),
    ],
)
def test_a_media_type_is_preferred_by_name_and_weight(accept: str, html: bool) -> None:
    """A range of types names none, and what is too long or no weight counts as nothing."""
    assert prefers(accept, "text/html", "application/json") is html


@given(st.text(), st.text())
def test_no_accept_field_prefers_both_strictly(accept: str, more: str) -> None:
    """Whatever it holds, an answer comes; one with less weight is never preferred."""
    field = f"{accept},text/html;q=0.4,application/json;q=0.5,{more}"
    assert prefers(field, "a/b", "c/d") in (True, False)
    if "text/html" not in accept + more and len(accept) < 500:
        assert not prefers(field, "text/html", "application/json")
