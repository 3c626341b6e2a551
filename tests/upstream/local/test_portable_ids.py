"""Ids that hold what a session is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.upstream.local.portable import (
    LONGEST_CAPABILITIES,
    PortableId,
    decode_portable,
    encode_portable,
    token_of,
)

TOKEN = "abcdefghijklmnopqrstuvwxyz-_0123"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.from_regex(r"[A-Za-z0-9_-]{16,64}", fullmatch=True),
    st.sampled_from(["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]),
    st.dictionaries(st.text(max_size=9), JSON, max_size=4),
)
def test_an_id_holds_the_session(token: str, version: str, capabilities: dict[str, Any]) -> None:
    """What is read from an id is what it was made of; it is a header value, and names no owner."""
    session = PortableId(token, version, capabilities)
    text = encode_portable(session)
    assert text is not None
    assert decode_portable(text) == session
    assert token_of(text) == token
    assert text.isascii() and text.isprintable() and not set(text) & {" ", ":", ","}


@given(st.text(max_size=200) | st.from_regex(r"p1\.[A-Za-z0-9_-]{16,20}\.[0-9-]{1,9}\.[A-Za-z0-9_-]{0,30}"))
def test_any_other_text_is_refused(text: str) -> None:
    """Whatever a row holds, nothing is raised."""
    session = decode_portable(text)
    assert session is None or isinstance(session.capabilities, dict)


@pytest.mark.parametrize(
    "text",
    ["", "p1", "p2." + TOKEN + ".1.", f"p1.{TOKEN}.2025-11-25.A", f"p1.{TOKEN}.2025-11-25.MQ", "a:" + TOKEN],
)
def test_such_texts_are_refused(text: str) -> None:
    """Another form, no base64, and what is no object."""
    assert decode_portable(text) is None


def test_a_text_that_is_no_text_is_kept() -> None:
    """JSON may spell half of a character, which UTF-8 cannot hold."""
    session = PortableId(TOKEN, "2025-11-25", {"x": "\ud800"})
    text = encode_portable(session)
    assert text is not None and decode_portable(text) == session


def test_long_capabilities_have_no_id() -> None:
    """Just as many bytes as there may be fit."""
    spare = LONGEST_CAPABILITIES - len(orjson.dumps({"x": ""}))
    fits, long = ({"x": "y" * size} for size in (spare, spare + 1))
    text = encode_portable(PortableId(TOKEN, "2025-11-25", fits))
    assert text is not None and decode_portable(text) == PortableId(TOKEN, "2025-11-25", fits)
    assert encode_portable(PortableId(TOKEN, "2025-11-25", long)) is None
