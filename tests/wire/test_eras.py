"""Eras and header mirrors, after MCP 2026-07-28."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import HeaderMismatch
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import Era, check_mirrors, classify, decode_mirror, encode_mirror
from adapter.wire.names import VERSION_KEY

MODERN = "2026-07-28"


def message(method: str, *, id: int | None = 1, version: object = None, **params: Any) -> Envelope:
    if version is not None:
        params["_meta"] = {VERSION_KEY: version}
    content: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if id is not None:
        content["id"] = id
    envelope = read_envelope(json.dumps(content).encode())
    assert isinstance(envelope, Envelope)
    return envelope


@pytest.mark.parametrize("version", ["2026-07-28", "2027-01-01", "9999-12-31"])
def test_modern_header_makes_modern(version: str) -> None:
    """A version date from 2026-07-28 on is modern, also one that nobody knows yet, also without a body."""
    assert classify(version, None) is Era.MODERN
    assert classify(version, message("initialize")) is Era.MODERN


@pytest.mark.parametrize("version", [None, "", "2025-11-25", "2024-11-05", "draft", "2026-07-28, 2025-11-25"])
def test_other_headers_leave_it_to_the_body(version: str | None) -> None:
    """Without a modern header the body decides, and a plain body is legacy."""
    assert classify(version, message("tools/list")) is Era.LEGACY
    assert classify(version, message("tools/list", version=MODERN)) is Era.MODERN
    assert classify(version, None) is Era.LEGACY


def test_malformed_modern_meta_is_modern() -> None:
    """A version that is no string, or a key that only begins like it, is a modern sign and no way out."""
    assert classify(None, message("tools/list", version=5)) is Era.MODERN
    assert classify(None, message("tools/list", _meta={VERSION_KEY + "s": MODERN})) is Era.MODERN


def test_methods_of_the_modern_era_are_modern() -> None:
    """server/discover exists in one era only."""
    assert classify(None, message("server/discover")) is Era.MODERN


def test_initialize_goes_by_the_header() -> None:
    """initialize opens a legacy session unless the header says otherwise."""
    assert classify("2025-11-25", message("initialize", version=MODERN)) is Era.LEGACY


def test_one_modern_member_makes_a_batch_modern() -> None:
    """A batch with a modern message is refused as modern traffic, so it counts as such."""
    bodies = [message("a").body, message("b", version=MODERN).body]
    assert classify(None, read_envelope(b"[" + b",".join(bodies) + b"]")) is Era.MODERN
    assert classify(None, read_envelope(b"[" + bodies[0] + b"]")) is Era.LEGACY


def test_mirrors_that_agree_pass() -> None:
    """Headers that say what the body says raise nothing, encoded or plain."""
    call = message("tools/call", version=MODERN, name="größe")
    check_mirrors(call, version=MODERN, method="tools/call", name=encode_mirror("größe"))
    check_mirrors(message("tools/list", version=MODERN), version=MODERN, method="tools/list", name="any")
    read = message("resources/read", version=MODERN, uri="file:///a", name="b")
    check_mirrors(read, version=MODERN, method="resources/read", name="file:///a")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"version": None}, "MCP-Protocol-Version"),
        ({"version": "2026-08-01"}, "MCP-Protocol-Version"),
        ({"method": None}, "Mcp-Method"),
        ({"method": "TOOLS/CALL"}, "Mcp-Method"),
        ({"name": None}, "Mcp-Name"),
        ({"name": "other"}, "Mcp-Name"),
        ({"name": "=?base64?x?="}, "Mcp-Name"),
    ],
)
def test_mirror_that_disagrees_is_named(changed: dict[str, str | None], named: str) -> None:
    """A missing, different or undecodable header is a mismatch, and the sentence says which header."""
    headers: dict[str, Any] = {"version": MODERN, "method": "tools/call", "name": "echo"} | changed
    with pytest.raises(HeaderMismatch, match=named):
        check_mirrors(message("tools/call", version=MODERN, name="echo"), **headers)


def test_body_without_version_is_left_to_the_upstream() -> None:
    """The upstream answers a body without a version with the versions it knows."""
    check_mirrors(message("tools/list"), version=MODERN, method="tools/list", name=None)


def test_notification_is_compared_where_it_has_headers() -> None:
    """The specification asks no header of a notification; what is there has to be right."""
    note = message("notifications/cancelled", id=None, version=MODERN)
    check_mirrors(note, version=None, method=None, name=None)
    with pytest.raises(HeaderMismatch, match="Mcp-Method"):
        check_mirrors(note, version=MODERN, method="notifications/progress", name=None)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        (True, "true"),
        (-7, "-7"),
    ],
)
def test_encoding_is_that_of_the_specification(value: str | int | bool, encoded: str) -> None:
    """The table of examples of the specification holds."""
    assert encode_mirror(value) == encoded


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])) | st.sampled_from(["=?base64?=", "\t"]))
def test_what_is_encoded_decodes(value: str) -> None:
    """Any text survives, and its header is visible ASCII with spaces and tabs inside at most."""
    encoded = encode_mirror(value)
    assert decode_mirror(encoded) == value
    assert encoded.isascii()
    assert encoded == encoded.strip()


@pytest.mark.parametrize("value", ["=?base64?a?=", "=?base64?/w==?=", "=?base64?a b=?=", "größe", "a\nb"])
def test_bad_mirror_is_a_mismatch(value: str) -> None:
    """Bad base64, bad UTF-8 and characters that no header holds are mismatches."""
    with pytest.raises(HeaderMismatch):
        decode_mirror(value)
