"""Lines of the audit log."""

from __future__ import annotations

import hmac
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import ToolUnknown, UpstreamBroken
from adapter.rules.access.principals import token_principal
from adapter.rules.calls.audit_record import LONGEST_LINE, AuditRecord, arguments_digest, session_digest
from adapter.rules.calls.request_outcomes import OK, TOOL_ERROR, UNANSWERED, RequestOutcome

BEGAN = "2026-01-01T00:00:00.007Z"


def record(**changes: Any) -> AuditRecord:
    made = AuditRecord("tools/call", "files", "read", "alice:0123456789abcdef", "mcp", BEGAN, 0.0)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def read(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n") and len(line.splitlines()) == 1 and len(line) <= LONGEST_LINE
    assert len(line.decode().splitlines()) == 1
    members: dict[str, Any] = orjson.loads(line)
    return members


def test_a_line_says_who_did_what() -> None:
    """Without the part of a principal that follows from its token, and without the session's id."""
    line = record(outcome="ok", id=7, session="secret-session", request=10, answer=20).line((("pid", 1),))
    assert read(line) == {
        "time": "2026-01-01T00:00:00.007Z",
        "event": "tools/call",
        "server": "files",
        "name": "read",
        "principal": "alice",
        "entrance": "mcp",
        "outcome": "ok",
        "duration_ms": 0.0,
        "request_bytes": 10,
        "answer_bytes": 20,
        "session": session_digest("secret-session"),
        "request_id": "7",
        "pid": 1,
    }
    assert b"secret" not in line and b"0123456789abcdef" not in line


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=2000))
def test_no_foreign_text_breaks_a_line(name: str, principal: str, request_id: str) -> None:
    """Newlines, separators, controls and characters of four bytes stay within one bounded line."""
    who = f"{principal}:x"
    read(record(name=name, principal=who, id=request_id, via=name, code=name, server=name[:100]).line())
    # A line that is made sooner is the same.
    success = AuditRecord.success(("tools/call", "files", name[:200], who, "mcp", None), (("pid", "50%d"),))
    told = record(name=name[:200], principal=who, id=7, milliseconds=1.5, request=10, answer=20)
    assert success % (BEGAN[:19].encode(), 7, 1.5, 10, 20, 7) == told.line((("pid", "50%d"),))


@pytest.mark.parametrize("text", ["\U0001f600" * 3000, "\n" * 3000, '"' * 3000, "\u2028\u2029\x85", "\ud800"])
def test_the_longest_texts_fit(text: str) -> None:
    """What is longer is cut."""
    names = dict.fromkeys(("name", "principal", "id", "via", "code", "server", "session"), text)
    read(record(**names | {"principal": f"{text}:x"}).line())


def test_a_digest_is_of_the_value() -> None:
    """In whatever order and spelling it came; with a key nobody without it finds it."""
    assert arguments_digest({"a": 1, "b": [True]}, b"k") == arguments_digest({"b": [True], "a": 1}, b"k")
    text = b'{"a":1}'
    assert arguments_digest({"a": 1}, b"k") == f"hmac-sha256:{hmac.digest(b'k', text, 'sha256').hex()}"
    assert arguments_digest(None, b"k") != arguments_digest({}, b"k")


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (OK, ("ok", None)),
        (TOOL_ERROR, ("tool_error", None)),
        (UNANSWERED, ("deferred", None)),
        (RequestOutcome("rpc_error", -32602), ("error", -32602)),
        (RequestOutcome("rpc_error", None), ("error", None)),
        (RequestOutcome("http", 503), ("error", "http_503")),
        (RequestOutcome("failed", ToolUnknown), ("refused", "tool_unknown")),
        (RequestOutcome("failed", UpstreamBroken), ("error", "upstream_broken")),
    ],
)
def test_the_outcome_of_a_request(outcome: RequestOutcome, told: tuple[str, int | str | None]) -> None:
    """A failed result is no error of the protocol, and what the adapter refuses is no failure."""
    one = record()
    one.end(outcome)
    line = read(one.line())
    assert (line["outcome"], line.get("code")) == told


def test_people_who_are_shown_alike_are_told_apart() -> None:
    """A name is all there is to say of others; these have the digest behind it, in lines that are no longer."""
    issuer = "https://login.example.org/" + "i" * 150
    told = []
    for name in ("😀" * 300 + "a", "😀" * 300 + "b", "a\u200bb", "a\\u200bb"):
        told.append(read(record(principal=token_principal(issuer, name)).line())["principal"])
    assert len(set(told)) == 4
    assert read(record(principal=token_principal("https://i", "ann")).line())["principal"] == "ann@https://i"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("https://me:hunter2@host/a@b?key=hunter2#hunter2", "https://host/a@b"),
        ("HTTPS:\\\\me:hunter2@host\\a", "HTTPS:\\\\host\\a"),
        ("https:me:hunter2@host/a", "https:host/a"),
        ("//me:hunter2@host/a", "//host/a"),
        ("db://me:hunter2@host/a", "db://host/a"),
        ("mailto:me@host", "mailto:me@host"),
        ("file:///a@b", "file:///a@b"),
        ("memo:x?y", "memo:x"),
        ("https://host", "https://host"),
    ],
)
def test_no_spelling_of_a_uri_brings_credentials_into_a_line(uri: str, told: str) -> None:
    """Whatever parsers of URLs find before a host is left out; so are query and fragment."""
    line = AuditRecord("resources/read", "s", uri, "p", "mcp", "", 0.0).line()
    assert orjson.loads(line)["name"] == told and b"hunter2" not in line
