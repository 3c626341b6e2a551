"""Heads that come again: recognized by their bytes, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.repeated_head import (
    LONGEST,
    LONGEST_SESSION,
    SessionHead,
    content_length,
    repeated_head,
    repeated_request,
    session_head,
)

FIELD = st.tuples(st.text("abcXYZ-", min_size=1, max_size=8), st.text("abc 019,=", max_size=12))


def message(fields: list[tuple[str, str]], place: int, name: str, body: bytes) -> bytes:
    """A request with these fields, and its Content-Length among them."""
    lines = [f"{field}: {value}" for field, value in fields]
    lines.insert(place % (len(lines) + 1), f"{name}: {len(body)}")
    return ("POST /mcp HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode() + body


@given(
    st.lists(FIELD, max_size=4),
    st.integers(0, 9),
    st.sampled_from(["Content-Length", "content-length", "CONTENT-Length"]),
    st.lists(st.binary(max_size=200), min_size=2, max_size=4),
)
def test_the_next_message_with_the_same_head_has_its_body(
    fields: list[tuple[str, str]], place: int, name: str, bodies: list[bytes]
) -> None:
    """Only the number may differ, and then it is the length of another body."""
    head = repeated_head(message(fields, place, name, bodies[0]))
    assert head is not None
    assert [head.body_of(message(fields, place, name, body)) for body in bodies] == bodies


@given(st.binary(max_size=2000))
def test_the_last_field_of_a_head_frames_its_body(body: bytes) -> None:
    """A reader that knows the head finds exactly the body behind it."""
    start = b"POST /mcp HTTP/1.1\r\nHost: here\r\n"
    assert content_length(len(body)) == f"Content-Length: {len(body)}\r\n\r\n".encode()
    head = repeated_head(start + content_length(2) + b"{}")
    assert head is not None
    assert head.body_of(start + content_length(len(body)) + body) == body


KNOWN = message([("Host", "here")], 1, "Content-Length", b"{}")


@given(st.integers(0, len(KNOWN) - 1), st.integers(0, 255))
def test_a_head_with_another_byte_is_not_recognized(place: int, byte: int) -> None:
    """But in the body, where each byte is the client's own."""
    head = repeated_head(KNOWN)
    assert head is not None
    changed = bytearray(KNOWN)
    changed[place] = byte
    body = head.body_of(bytes(changed))
    in_body = place >= len(KNOWN) - 2
    assert (body is not None) == (in_body or bytes(changed) == KNOWN)


@pytest.mark.parametrize(
    "data",
    [KNOWN + b"x", KNOWN[:-1], KNOWN + KNOWN, b"", b"\r\n" + KNOWN, KNOWN.replace(b": 2", b": +2")],
    ids=["a byte more", "a byte less", "two", "nothing", "a line before", "a sign"],
)
def test_what_is_not_exactly_one_message_is_not_recognized(data: bytes) -> None:
    """What comes before or behind it is for the parser to judge."""
    head = repeated_head(KNOWN)
    assert head is not None
    assert head.body_of(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\nContent-Length: 2\n\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 2 \r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nContent-Length: 0000000002\r\n\r\n{}",
    ],
    ids=["nothing", "no length", "other line ends", "two lengths", "space behind", "another length", "zeros"],
)
def test_an_unusual_head_is_left_to_the_parser(data: bytes) -> None:
    """Nothing is learned from it."""
    assert repeated_head(data) is None


def test_a_long_head_is_not_remembered() -> None:
    """Each connection could have one."""
    long = message([("X", "x" * LONGEST)], 1, "Content-Length", b"{}")
    assert repeated_head(long) is None


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=20))
def test_bodies_of_any_lengths_are_found_in_any_order(sizes: list[int]) -> None:
    """The head that a message of one size must have is not taken for that of another size."""
    head = repeated_head(KNOWN)
    assert head is not None
    for size in sizes:
        body = b"x" * size
        assert head.body_of(message([("Host", "here")], 1, "Content-Length", body)) == body
        assert head.body_of(message([("Host", "here")], 1, "Content-Length", body) + b"x") is None


# --- sessions -------------------------------------------------------------------------------------------------

ID = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=LONGEST_SESSION)


def in_session(session: str, body: bytes | None, *, length_first: bool) -> bytes:
    """A request of that session; without a body also without Content-Length."""
    lines = ["Host: here", f"Mcp-Session-Id: {session}", "Accept: */*"]
    if body is not None:
        lines.insert(0 if length_first else 3, f"Content-Length: {len(body)}")
    return ("POST /mcp HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


def known_by(data: bytes, session: str) -> SessionHead | None:
    head = repeated_request(data)
    assert head is not None
    return session_head(head, session)


@given(ID, ID, st.binary(max_size=200), st.binary(max_size=200), st.booleans())
def test_the_same_head_of_another_session_is_recognized(
    one: str, other: str, first: bytes, second: bytes, length_first: bool
) -> None:
    """With its session id, its body, and a head by which the next request of that session is recognized."""
    known = known_by(in_session(one, first, length_first=length_first), one)
    assert known is not None
    found = known.of(in_session(other, second, length_first=length_first))
    assert found is not None
    session, head, body = found
    assert (session, body) == (other, second)
    assert head.body_of(in_session(other, first, length_first=length_first)) == first


@given(ID, ID)
def test_a_request_without_a_body_is_recognized_in_another_session(one: str, other: str) -> None:
    """As the DELETE that ends a session: it has no Content-Length."""
    known = known_by(in_session(one, None, length_first=False), one)
    assert known is not None
    data = in_session(other, None, length_first=False)
    found = known.of(data)
    assert found is not None and found[0] == other and found[2] == found[1].body_of(data) == b""
    assert known.of(data + b"x") is None


@given(st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_a_session_head_with_another_byte_is_not_recognized(
    place: int, byte: int, length_first: bool
) -> None:
    """But in the id and in the body, which are the client's own."""
    data = in_session("abc", b"{}", length_first=length_first)
    known = known_by(data, "abc")
    assert known is not None
    changed = bytearray(data)
    changed[place % len(data)] = byte
    found = known.of(bytes(changed))
    if found is None:
        return
    session, head, body = found
    assert head.body_of(bytes(changed)) == body
    assert bytes(changed) == in_session(session, body, length_first=length_first)


@pytest.mark.parametrize(
    "session",
    ["", "a b", "a\tb", "a\nb", "a\x00b", "ä", "x" * (LONGEST_SESSION + 1)],
    ids=["none", "space", "tab", "line feed", "NUL", "not ASCII", "long"],
)
def test_an_unusual_id_is_left_to_the_parser(session: str) -> None:
    """A parser may cut it, or refuse it."""
    for length_first in (True, False):
        known = known_by(in_session("abc", b"{}", length_first=length_first), "abc")
        assert known is not None
        assert known.of(in_session(session, b"{}", length_first=length_first)) is None


@pytest.mark.parametrize(
    ("data", "session"),
    [
        (KNOWN, "abc"),
        (in_session("abc", b"{}", length_first=True), "other"),
        (in_session("", b"{}", length_first=True), ""),
        (in_session("a b", b"{}", length_first=True), "a b"),
        (in_session("abc\r\n d", b"{}", length_first=False), "abc"),
        (in_session("abc ", b"{}", length_first=False), "abc"),
        (in_session("a\r\nMcp-Session-Id: a", b"{}", length_first=False), "a"),
        (in_session("a\r\nContent-Length: 2\r\nMcp-Session-Id: a", None, length_first=False) + b"{}", "a"),
    ],
    ids=["none", "another", "empty", "inner space", "folded", "space behind", "two", "two around the length"],
)
def test_from_an_unusual_session_field_nothing_is_learned(data: bytes, session: str) -> None:
    """Whoever reads the value may read another than its bytes."""
    assert known_by(data, session) is None


def test_a_request_that_goes_on_is_not_its_head_alone() -> None:
    """What comes behind a head without Content-Length is for the parser to judge."""
    bare = b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n"
    head = repeated_request(bare)
    assert head is not None and head.body_of(bare) == b""
    assert head.body_of(bare + bare) is None and head.body_of(bare[:-1]) is None
    assert repeated_request(bare + b"0\r\n\r\n") is None
    assert repeated_request(b"DELETE / HTTP/1.1\nHost: a\n\n") is None
    assert repr(head).startswith("<RepeatedHead of ") and "SessionHead of" in repr(
        known_by(in_session("a", b"", length_first=True), "a")
    )
