"""Labels of MCP operations."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import LimitReached
from adapter.rules.metrics.operations import (
    ACCEPTED,
    CLIENT_GONE,
    LINES_LOOKED_INTO,
    LONGEST_KEPT,
    LOOKED_INTO,
    OK,
    TOOL_ERROR,
    OperationOutcome,
    combined,
    data_of_events,
    failed_in,
    known_version,
    method_name,
    named_in,
    outcome_in,
    outcome_of_body,
    outcome_of_error,
    outcome_of_status,
)
from adapter.rules.metrics.tool_names import LONGEST_NAME
from adapter.wire.envelope import read_envelope


def message(**members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, **members})


UNKNOWN_TOOL = OperationOutcome("rpc_error", "-32602", "-32602")


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (message(result={"content": []}), OK),
        (message(result={"content": [], "isError": False}), OK),
        (message(result={"content": [], "isError": True}), TOOL_ERROR),
        (message(result={"structuredContent": {"isError": True}}), OK),
        (message(result={"text": '"error" "isError": true'}), OK),
        (message(error={"code": -32602, "message": "Unknown tool"}), UNKNOWN_TOOL),
        (message(error={"code": 4711, "message": "?"}), OperationOutcome("rpc_error", "other", "other")),
        (message(error="?"), OperationOutcome("rpc_error", "other", "other")),
        (b"[" + message(result={}) + b"," + message(error={"code": -32602}) + b"]", UNKNOWN_TOOL),
        (message(method="notifications/progress"), None),
        (message(method="notifications/message", params={"error": 1}), None),
        (b'{"error": ', None),
        (b"", None),
        (b"x" * (LOOKED_INTO + 1), ACCEPTED),
    ],
)
def test_a_response_tells_its_outcome(data: bytes, outcome: OperationOutcome | None) -> None:
    """What is only quoted in a result is none, and a message that is no response has none."""
    assert outcome_in(data) == outcome


@pytest.mark.parametrize("separator", [b"\n\n", b"\r\n\r\n"])
def test_a_failure_is_seen_in_a_chunk(separator: bytes) -> None:
    """Of a body, or of events; a result is no failure."""
    failure, done = message(error={"code": -32602}), message(result={})
    assert failed_in(failure) == UNKNOWN_TOOL
    assert failed_in(b"data: " + done + separator + b"data: " + failure + separator) == UNKNOWN_TOOL
    assert failed_in(done) is None
    assert failed_in(message(result={"error": 1})) is None
    assert failed_in(b"x" * (LOOKED_INTO + 1)) is None
    assert failed_in(b"\n" * LINES_LOOKED_INTO + failure) == UNKNOWN_TOOL


@pytest.mark.parametrize("separator", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_of_too_many_lines_are_not_looked_into(separator: bytes) -> None:
    """However few bytes each line has: to read a megabyte of tiny events would hold up everybody else for a second."""
    failure = b"data: " + message(error={"code": -32602}) + separator
    few = (LINES_LOOKED_INTO - 10) // len(separator)
    assert failed_in(separator * few + failure) == UNKNOWN_TOOL
    assert data_of_events(separator * few + failure)
    assert failed_in(separator * LINES_LOOKED_INTO + failure) is None
    assert data_of_events(separator * LINES_LOOKED_INTO + failure) == []


def test_a_failure_is_the_outcome_of_all() -> None:
    """Then comes a result; what tells neither is no more than accepted."""
    assert combined([OK, UNKNOWN_TOOL, OK, TOOL_ERROR]) == UNKNOWN_TOOL
    assert combined([ACCEPTED, OK, None]) is OK
    assert combined([None, ACCEPTED]) is ACCEPTED
    assert combined([None]) is combined([]) is None
    assert OK != ACCEPTED and OK[:3] == ACCEPTED[:3]


def test_the_outcome_of_a_whole_answer() -> None:
    """A result is one only where all of the answer was read."""
    result = message(result={})
    assert outcome_of_body(200, result) is outcome_of_body(200, b"data: " + result + b"\n\n") is OK
    assert outcome_of_body(200, message(error={"code": -32602})) == UNKNOWN_TOOL
    assert outcome_of_body(202, b"") is ACCEPTED
    assert outcome_of_body(200, b"\n\n" * LINES_LOOKED_INTO + result) is ACCEPTED
    assert outcome_of_body(200, result + b" " * LOOKED_INTO) is ACCEPTED
    assert outcome_of_body(404, result) == OperationOutcome("http_4xx", "404")


@given(st.binary())
def test_anything_may_come(data: bytes) -> None:
    """Nothing is raised, and no label holds what a server sent."""
    for found in (outcome_in(b'"error"' + data), failed_in(b'"error"' + data)):
        assert found is None or found in (OK, ACCEPTED, TOOL_ERROR) or found.label == "rpc_error"


@given(st.text(), st.text())
def test_labels_are_few(method: str, version: str) -> None:
    """A stranger's method and version make no new label."""
    assert method_name(method) in (method, "_OTHER")
    assert method_name("tools/" + method) in ("tools/call", "tools/list", "_OTHER")
    assert known_version(version) is None and known_version(None) is None
    assert known_version("2025-11-25") == "2025-11-25"


def test_what_waits_to_be_counted_is_short() -> None:
    """A method or a name of megabytes does not stay in memory until it is counted, and is not known then either."""
    long = message(method="m" * 10_000, params={"name": "tool" * 10_000})
    (named,) = named_in(read_envelope(long))
    assert named == ("m" * LONGEST_KEPT, ("tool" * 10_000)[:LONGEST_KEPT])
    assert LONGEST_KEPT > LONGEST_NAME
    batch = read_envelope(b"[" + message(method="ping") + b"," + message(result={}) + b"]")
    assert named_in(batch) == (("ping", None), ("", None))


def test_errors_and_statuses() -> None:
    """The adapter's errors by their codes, others by the class of their status."""
    assert outcome_of_error(LimitReached).label == LimitReached.code
    assert outcome_of_error(LimitReached).status_code == str(LimitReached.rpc)
    assert outcome_of_status(204) is ACCEPTED
    assert outcome_of_status(404) == OperationOutcome("http_4xx", "404")
    assert {outcome_of_status(status).error_type for status in range(600, 1000)} == {"other"}
    assert CLIENT_GONE.error_type == "cancelled"
