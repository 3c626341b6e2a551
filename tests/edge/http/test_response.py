"""The head of an answer: fields of many answers and one of its own, and the fields that the adapter adds."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.edge.http.request import Sendable
from adapter.edge.http.response import JOIN_BELOW, HttpAnswer, http_date
from adapter.rules.access.headers import SharedFields

SHARED = [("Content-Type", "application/json"), ("Server", "other")]


class Written:
    """A connection that keeps what is written to it."""

    full = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def soon(self, act: Callable[[], None]) -> None:
        act()

    async def drained(self) -> None:
        """Return at once."""

    async def send_file(self, file: Sendable, offset: int, length: int) -> None:
        """Send nothing."""

    def abort(self) -> None:
        """Stay open."""


def lines_of(fields: list[tuple[str, str]], *, keep: bool) -> list[bytes]:
    """The lines of an answer with these fields, without the one that tells the time."""
    written = Written()
    HttpAnswer(written, keep, True, False, None).send(200, fields, b"{}")
    return sorted(line for line in written.data.split(b"\r\n") if not line.startswith(b"Date: "))


@pytest.mark.parametrize("keep", [True, False])
def test_a_field_behind_shared_ones_is_a_line_as_any(keep: bool) -> None:
    """Each session adds its id to the same head."""
    shared = SharedFields(SHARED)
    for field in (("Mcp-Session-Id", "a"), ("Mcp-Session-Id", "b"), ("X", "é"), ("X", "€"), ("X", "a\tb")):
        for _ in range(2):
            assert lines_of(shared.followed_by(field), keep=keep) == lines_of([*SHARED, field], keep=keep)


def test_a_date_or_server_behind_shared_fields_is_the_only_one() -> None:
    """The adapter adds none of its own."""
    shared = SharedFields(SHARED[:1])
    lines = lines_of(shared.followed_by(("server", "other")), keep=True)
    assert [line for line in lines if line.lower().startswith(b"server:")] == [b"server: other"]


def test_a_field_of_two_lines_is_refused_behind_shared_ones_too() -> None:
    """It would be another field, that nobody here wrote."""
    shared = SharedFields(SHARED)
    for value in ("a\r\nX: 1", "a\nb", "a\0b"):
        with pytest.raises(ValueError, match="CR, LF or NUL"):
            HttpAnswer(Written(), True, True, False, None).send(200, shared.followed_by(("X", value)))


@given(st.integers(0, 253402300799))
def test_dates_are_those_of_the_standard_library(seconds: int) -> None:
    """Until the end of the year 9999."""
    assert http_date(seconds) == formatdate(seconds, usegmt=True)


@pytest.mark.parametrize(
    ("seconds", "date"), [(0, "Thu, 01 Jan 1970 00:00:00 GMT"), (784111777, "Sun, 06 Nov 1994 08:49:37 GMT")]
)
def test_a_date_has_the_fixed_length_of_the_specification(seconds: int, date: str) -> None:
    """RFC 9110, 5.6.7, has the second example."""
    assert http_date(seconds) == date


def test_a_large_body_is_not_copied() -> None:
    """It leaves behind its head; a small one leaves with it, in one piece."""
    written = Written()
    answer = HttpAnswer(written, True)
    body = b"x" * JOIN_BELOW
    answer.send(200, SHARED, body)
    head, left = written.pieces
    assert left is body and head.endswith(b"Content-Length: %d\r\n\r\n" % len(body))
    assert answer.sent == len(body)
    small = Written()
    HttpAnswer(small, True).send(200, SHARED, body[1:])
    assert len(small.pieces) == 1
