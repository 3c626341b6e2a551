"""The text of an upstream that refuses a caller: bounded, and without what the caller sent."""

from __future__ import annotations

import pytest

from adapter.relay.server import SHOWN, caller_refusal

SENT = [("Authorization", "Bearer s3cr3t-of-ann"), ("Accept", "application/json"), ("X-Key", "key-0123")]


def test_what_an_upstream_repeats_of_the_caller_is_hidden() -> None:
    """Its token, its other fields and its session; the rest is told as it is."""
    body = b'{"error": "s3cr3t-of-ann of key-0123 in up-session-1 may not, says application/json"}'
    told = caller_refusal(7.0, 403, [], body, SENT, ["up-session-1", None])
    assert told == (7.0, 403, '{"error": "[hidden] of [hidden] in [hidden] may not, says application/json"}')


def test_parts_of_what_a_caller_sent_are_hidden() -> None:
    """The value of a cookie, which a server repeats without its name."""
    sent = [("Cookie", "theme=dark; sid=5e551on-of-ann; last=abcdef01")]
    told = caller_refusal(1.0, 401, [], b"no session 5e551on-of-ann, abcdef01", sent)
    assert told.text == "no session [hidden], [hidden]"


def test_a_text_in_which_a_secret_may_be_cut_is_not_told() -> None:
    """A token may be longer than what is read of the text."""
    token = "0a1b2c3d" * 700
    assert caller_refusal(1.0, 401, [], f"bad token: {token}".encode(), [("X-Token", token)]).text == ""
    sent = [("X-Token", token[:4000])]
    assert caller_refusal(1.0, 401, [], token[:4000].encode(), sent).text == "[hidden]"


@pytest.mark.parametrize("body", [b"\xff\x00<script>alert(1)</script>" * 99, "a\u202eb".encode() * 800])
def test_text_is_one_bounded_line(body: bytes) -> None:
    """Whatever bytes come."""
    text = caller_refusal(1.0, 401, [], body, []).text
    assert text.isprintable() and len(text) <= SHOWN


def test_what_cannot_be_read_has_no_text() -> None:
    """A stream, and a body that is compressed."""
    assert caller_refusal(1.0, 401, [], object(), []).text == ""
    assert caller_refusal(1.0, 401, [("Content-Encoding", "gzip")], b"\x1f\x8b", []).text == ""
    assert caller_refusal(1.0, 401, [("Content-Encoding", "identity")], b"no", []).text == "no"
