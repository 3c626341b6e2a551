"""Headers of answers: all reach the client but those of the connection and those that act on a browser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.headers import (
    HELD_BACK,
    KNOWN_AT_MOST,
    KNOWN_SIZE,
    NEVER,
    OWN,
    AnswerHeaders,
    SharedFields,
    of_changed_body,
)

Fields = list[tuple[str, str]]

LISTED = [name for group in HELD_BACK for name in group.names]


def _heard(headers: Fields, **lists: tuple[str, ...]) -> Fields:
    return AnswerHeaders(**lists).to_client(headers)


def test_what_nobody_listed_passes_as_it_was_spelled() -> None:
    """Representation, caching, limits, tracing and whatever else a server says; order and repeats are kept."""
    headers = [
        ("Content-Type", "text/event-stream"),
        ("content-encoding", "gzip"),
        ("Vary", "Accept"),
        ("VARY", "Origin"),
        ("WWW-Authenticate", 'Bearer resource_metadata="https://a/b"'),
        ("X-RateLimit-Remaining", "3"),
        ("X-Accel-Buffering", "no"),
        ("Server", "up/1"),
        ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("X-Powered-By", "up"),
        ("Content-Disposition", "inline"),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Unheard-Of", "1"),
        ("Content-Digest", "sha-256=:eA==:"),
        ("X-Empty", ""),
        ("X-Odd", "a\tb \xe9\xff"),
    ]
    assert _heard(headers) == headers


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_stays_here(name: str) -> None:
    """In any spelling; a name with a star stands for all that begin so."""
    for spelled in (name.replace("*", ""), name.replace("*", "anything"), name.replace("*", "-X").title()):
        if name.endswith("*") or "*" not in spelled:
            assert _heard([(spelled, "value"), ("X-Else", "1")]) == [("X-Else", "1")]


@pytest.mark.parametrize("name", sorted(NEVER | OWN))
def test_what_belongs_to_a_connection_or_to_the_adapter_never_passes(name: str) -> None:
    """Not even where ``passthrough`` lists it."""
    assert _heard([(name.title(), "value")], passthrough=(name,)) == []


def test_passthrough_lets_a_listed_field_pass() -> None:
    """It names the very field: what else the same star stands for stays here."""
    headers = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Access-Control-Max-Age", "1"), ("Link", "<a>")]
    passed = _heard(headers, passthrough=("Set-Cookie", "access-control-max-age"))
    assert passed == headers[:3]


def test_drop_keeps_more_here() -> None:
    """Also what would pass, and what ``passthrough`` names too."""
    headers = [("Server", "up/1"), ("Set-Cookie", "a=1"), ("X-Else", "1")]
    assert _heard(headers, drop=("SERVER", "Set-Cookie"), passthrough=("set-cookie",)) == [("X-Else", "1")]


@pytest.mark.parametrize("first", [True, False], ids=["Connection first", "Connection last"])
def test_fields_named_by_connection_end_here(first: bool) -> None:
    """RFC 9110 §7.6.1: what Connection names is of this hop, also where ``passthrough`` lists it."""
    connection = [("Connection", "keep-alive, ETag ,x-hop")]
    fields = [("ETag", "1"), ("X-Hop", "1"), ("Vary", "Accept")]
    headers = connection + fields if first else fields + connection
    assert _heard(headers, passthrough=("x-hop",)) == [("Vary", "Accept")]


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b"])
def test_what_could_split_an_answer_is_dropped(value: str) -> None:
    """Neither a value nor a name leads a line break into a client's answer."""
    assert _heard([("Content-Type", value)]) == []
    assert _heard([(f"X-{value}", "1")]) == []


def test_a_changed_body_loses_what_described_its_bytes() -> None:
    """Coding, digests and validators of other bytes would be lies; everything else stays."""
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Encoding", "gzip"),
        ("ETag", "1"),
        ("Content-Digest", "d"),
        ("Signature", "s"),
        ("Cache-Control", "no-store"),
    ]
    assert of_changed_body(headers) == [headers[0], headers[5]]


def test_what_is_given_out_is_the_takers_own() -> None:
    """Whoever adds to it changes no later answer."""
    rules = AnswerHeaders()
    rules.to_client([("Vary", "Accept")]).append(("Mcp-Session-Id", "secret"))
    assert rules.to_client([("Vary", "Accept")]) == [("Vary", "Accept")]


def test_fields_of_many_answers_are_selected_once() -> None:
    """An answer with the same head, but for its length, gets what was selected for the first."""
    rules, other_rules = AnswerHeaders(), AnswerHeaders(drop=["vary"])
    shared = SharedFields([("Vary", "Accept"), ("Content-Length", "2"), ("Set-Cookie", "a=b")])
    passed = rules.to_client(shared)
    assert passed == [("Vary", "Accept")]
    assert rules.to_client(shared.with_length(3)) is passed
    assert other_rules.to_client(shared) == []


def test_shared_fields_say_the_length_of_the_answer_that_has_them() -> None:
    """The others stay as they came, in their order."""
    shared = SharedFields([("X", "1"), ("content-length", "2"), ("X", "3")])
    longer = shared.with_length(30)
    assert longer == [("X", "1"), ("content-length", "30"), ("X", "3")]
    assert longer.with_length(30) is longer
    assert shared == [("X", "1"), ("content-length", "2"), ("X", "3")]


def test_fields_behind_shared_ones_are_their_own() -> None:
    """The base stays as it is, and keeps what follows from it."""
    shared = SharedFields([("X", "1")])
    longer = shared.followed_by(("Y", "2"))
    assert longer == [("X", "1"), ("Y", "2")] and longer.base is shared
    assert shared == [("X", "1")] and longer.derived is not shared.derived


def test_answers_that_open_sessions_share_all_but_the_id() -> None:
    """However many sessions there are, the fields that pass are the same."""
    rules = AnswerHeaders()
    passed = [
        rules.shared([("Vary", "Accept"), ("MCP-SESSION-ID", f"up-{number}")])
        for number in range(2 * KNOWN_AT_MOST)
    ]
    assert passed[0] == [("Vary", "Accept")]
    assert all(each is passed[0] for each in passed)
    assert rules.to_client([("Vary", "Accept"), ("mcp-session-id", "up")]) == passed[0]


def test_few_heads_are_remembered_and_no_large_ones() -> None:
    """A server that says something new each time fills no memory."""
    rules = AnswerHeaders()
    for number in range(10 * KNOWN_AT_MOST):
        assert rules.to_client([("X-Request-Id", str(number))]) == [("X-Request-Id", str(number))]
    assert len(rules._known) <= KNOWN_AT_MOST
    before = len(rules._known)
    rules.to_client([("X-Large", "x" * KNOWN_SIZE)])
    assert len(rules._known) == before


_listed = st.sampled_from([name.rstrip("*") for name in LISTED])
_names = (
    _listed
    | st.sampled_from(["connection", "Mcp-Session-Id", "Vary", "x-ok", "Server", "KEEP-ALIVE", "mcp-x"])
    | st.text()
)
_cased = st.builds(lambda name, upper: name.upper() if upper else name, _names, st.booleans())
_fields = st.lists(st.tuples(_cased, st.text()), max_size=12)


@given(_fields)
def test_no_listed_header_ever_passes(headers: Fields) -> None:
    """Whatever else is said, and nothing is invented, reordered or changed."""
    passed = _heard(headers)
    rest = iter(headers)
    assert all(field in rest for field in passed)
    for name, value in passed:
        lower = name.lower()
        assert not any(
            lower.startswith(each[:-1]) if each.endswith("*") else lower == each for each in LISTED
        )
        assert lower not in NEVER | OWN
        assert not any(character in name + value for character in "\r\n\x00")


@given(_fields, st.lists(_names, max_size=4), st.lists(_names, max_size=4))
def test_the_settings_only_move_what_they_name(headers: Fields, drop: list[str], pass_: list[str]) -> None:
    """``drop`` wins over ``passthrough``, and neither touches another field."""
    named = {name.lower() for name in (*drop, *pass_)}
    plain = _heard(headers)
    changed = _heard(headers, drop=tuple(drop), passthrough=tuple(pass_))
    assert [field for field in plain if field[0].lower() not in named] == [
        field for field in changed if field[0].lower() not in named
    ]
    assert not {name.lower() for name, _ in changed} & ({name.lower() for name in drop} | NEVER | OWN)
