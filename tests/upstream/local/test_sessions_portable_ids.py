"""Ids that hold what a session is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.upstream.local.sessions import PortableId, decode_portable, token_of

TOKEN = "abcdefghijklmnopqrstuvwxyz-_0123"


@given(
    st.from_regex(r"[A-Za-z0-9_-]{16,64}", fullmatch=True),
    st.sampled_from(["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]),
)
def test_an_id_holds_the_session(token: str, version: str) -> None:
    """What is read from an id is what it was made of; it is a header value, and names no owner."""
    session = PortableId(token, version)
    text = str(session)
    assert decode_portable(text) == session
    assert token_of(text) == token
    assert text.isascii() and text.isprintable() and not set(text) & {" ", ":", ","}


@pytest.mark.parametrize(
    "text",
    ["", "p1", f"p2.{TOKEN}.1", f"p1.{TOKEN}", f"p1.{TOKEN}.2025-11-25.x", f"p1.{TOKEN}.1\n", f"a:{TOKEN}"],
)
def test_such_texts_are_refused(text: str) -> None:
    """Another form, and more than an id has."""
    assert decode_portable(text) is None
