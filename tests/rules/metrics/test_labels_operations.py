"""Labels of MCP operations."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import LimitReached
from adapter.rules.calls.request_outcomes import (
    ACCEPTED,
    CLIENT_GONE,
    OK,
    TOOL_ERROR,
    UNANSWERED,
    RequestOutcome,
)
from adapter.rules.metrics.labels import (
    LONGEST_KEPT,
    LONGEST_NAME,
    known_version,
    labels_of,
    labels_upstream,
    method_name,
    named_in,
)
from adapter.wire.envelope import read_envelope


def message(**members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, **members})


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


RPC, LIMIT = str(LimitReached.rpc), LimitReached.code


@pytest.mark.parametrize(
    ("outcome", "labels", "upstream"),
    [
        (OK, ("ok", "", ""), ("ok", "", "")),
        (ACCEPTED, ("ok", "", ""), ("ok", "", "")),
        (UNANSWERED, ("unanswered", "unanswered", ""), ("ok", "", "")),
        (TOOL_ERROR, ("tool_error", "tool_error", ""), None),
        (CLIENT_GONE, ("client_gone", "cancelled", ""), None),
        (RequestOutcome("rpc_error", -32602), ("rpc_error", "-32602", "-32602"), None),
        (RequestOutcome("rpc_error", 4711), ("rpc_error", "other", "other"), None),
        (RequestOutcome("rpc_error", None), ("rpc_error", "other", "other"), None),
        (RequestOutcome("http", 404), ("http_4xx", "404", ""), None),
        *(
            (RequestOutcome("http", status), (f"http_{status // 100}xx", "other", ""), None)
            for status in (600, 999)
        ),
        (RequestOutcome("failed", LimitReached), (LIMIT, RPC, RPC), (LIMIT, LIMIT, "")),
    ],
)
def test_an_outcome_has_few_labels(
    outcome: RequestOutcome, labels: tuple[str, str, str], upstream: tuple[str, str, str] | None
) -> None:
    """The adapter's errors by their codes, others by the class of their status, and no code that a server made up."""
    assert labels_of(outcome) == labels
    assert labels_upstream(outcome) == (upstream or labels)
