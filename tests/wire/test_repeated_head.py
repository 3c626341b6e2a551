"""Heads that come again: recognized by their bytes, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.repeated_head import LONGEST, content_length, repeated_head

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
