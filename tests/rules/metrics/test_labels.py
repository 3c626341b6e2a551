"""Labels of MCP operations, routes and tools."""

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
    LONGEST_LIST,
    LONGEST_NAME,
    METHODS,
    MOST_NAMES,
    RouteGroup,
    RouteGroups,
    ToolNames,
    known_version,
    labels_of,
    labels_upstream,
    method_label,
    method_name,
    named_in,
    names_in_list,
    status_class,
)
from adapter.wire.envelope import read_envelope
from adapter.wire.sse import encode


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


# --- groups of routes --------------------------------------------------------------------------------------------


GROUPS = RouteGroups(
    {"/mcp/shop": RouteGroup("mcp", "shop"), "/healthz": RouteGroup("health")},
    {"/upload": "upload", "/upload/deep": "artifact", "/console": "console"},
    frozenset({"shop"}),
)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/mcp/shop", RouteGroup("mcp", "shop")),
        ("/mcp/shop/", RouteGroup("mcp", "shop")),
        ("/mcp/shop/x", RouteGroup("other")),
        ("/healthz", RouteGroup("health")),
        ("/upload/shop", RouteGroup("upload", "shop")),
        ("/upload/stranger", RouteGroup("upload")),
        ("/upload/deep/shop", RouteGroup("artifact", "shop")),
        ("/uploads", RouteGroup("other")),
        ("/console", RouteGroup("console")),
        ("/console/shop", RouteGroup("console", "shop")),
        ("/console/shop/tools/x", RouteGroup("api", "shop")),
        ("/console/data/status", RouteGroup("console")),
    ],
)
def test_a_path_belongs_to_a_group(path: str, group: RouteGroup) -> None:
    """The longest prefix counts, and only servers of the settings are named."""
    assert GROUPS.of(path) == group
    assert repr(GROUPS) == "<RouteGroups: 2 paths, 3 prefixes>"


@given(st.text(), st.text(), st.integers(100, 999))
def test_labels_are_few_whatever_comes(path: str, method: str, status: int) -> None:
    """A stranger's path and method make no new label."""
    name, server = GROUPS.of("/" + path)
    assert name in {"mcp", "health", "upload", "artifact", "console", "api", "other"}
    assert server in {"", "shop"}
    assert method_label(method) in METHODS | {"other"}
    assert status_class(status) in {f"{hundred}xx" for hundred in range(1, 10)}


def test_an_answer_that_never_began_has_no_status() -> None:
    """Its client left, or it was cut."""
    assert status_class(None) == "none"
    assert method_label("GET") == "GET"


# --- names of tools that labels may have -------------------------------------------------------------------------


def list_of(*names: str) -> bytes:
    return orjson.dumps({"id": 1, "result": {"tools": [{"name": name} for name in names]}})


def test_only_tools_that_exist_are_named() -> None:
    """Those of the settings, those that were listed, whole or in events, and those whose call had a result."""
    names = ToolNames(["configured"])
    names.listed(list_of("listed"), streams=False)
    called = ("configured", "invented", "listed", None)
    assert [names.label(each, TOOL_ERROR) for each in called] == ["configured", "other", "listed", "other"]
    names.listed(encode(list_of("in an event")), streams=True)
    assert [names.label(each, TOOL_ERROR) for each in ("in an event", "answered")] == ["in an event", "other"]
    assert names.label("answered", OK) == names.label("answered", TOOL_ERROR) == "answered"
    names.listed(list_of("long", "x" * LONGEST_LIST), streams=False)
    assert names.label("long", TOOL_ERROR) == "other"
    assert repr(names) == "<ToolNames: 4>"


@given(st.lists(st.text(), max_size=3 * MOST_NAMES))
def test_there_is_a_bound_whatever_a_server_lists(listed: list[str]) -> None:
    """On the number of names, and on the length of each."""
    names = ToolNames(listed)
    called = [*listed, *map(str, range(1000)), "x" * (LONGEST_NAME + 1)]
    for each in called:
        names.label(each, OK)
    names.listed(list_of(*called[-5:]), streams=False)
    labels = {names.label(each, TOOL_ERROR) for each in called}
    assert MOST_NAMES <= len(labels) <= MOST_NAMES + 1


def test_names_are_learned_from_lists() -> None:
    """Whatever else a list holds is passed over, and what is no list has none."""
    tools = [{"name": "a"}, {"name": 5}, {}, "b", {"name": "c"}]
    assert names_in_list(orjson.dumps({"id": 1, "result": {"tools": tools}})) == ["a", "c"]
    for other in (b"{", b"[]", b"{}", b'{"result":[]}', b'{"result":{"tools":{}}}'):
        assert names_in_list(other) == []
