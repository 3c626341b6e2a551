"""Names of tools that labels may have."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.request_outcomes import OK, TOOL_ERROR
from adapter.rules.metrics.labels import (
    LONGEST_LIST,
    LONGEST_NAME,
    MOST_NAMES,
    ToolNames,
    names_in_list,
)
from adapter.wire.sse import encode


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
