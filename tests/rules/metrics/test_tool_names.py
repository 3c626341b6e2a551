"""Names of tools that labels may have."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.metrics.tool_names import LONGEST_NAME, MOST_NAMES, ToolNames, names_in_list


def test_only_tools_that_exist_are_named() -> None:
    """Those of the settings, and those that were learned."""
    names = ToolNames(["configured"])
    names.learn(["listed"])
    assert [names.label(each) for each in ("configured", "listed", "invented", None)] == [
        *("configured", "listed", "other", "other"),
    ]
    assert names.knows("listed") and not names.knows("invented")
    assert repr(names) == "<ToolNames: 2>"


@given(st.lists(st.text(), max_size=3 * MOST_NAMES))
def test_there_is_a_bound_whatever_a_server_lists(listed: list[str]) -> None:
    """On the number of names, and on the length of each."""
    names = ToolNames()
    names.learn(listed)
    names.learn(map(str, range(1000)))
    names.learn(["x" * (LONGEST_NAME + 1)])
    assert names.full
    labels = {names.label(each) for each in (*listed, *map(str, range(1000)), "x" * (LONGEST_NAME + 1))}
    assert len(labels) <= MOST_NAMES + 1


def test_names_are_learned_from_lists() -> None:
    """Whatever else a list holds is passed over, and what is no list has none."""
    tools = [{"name": "a"}, {"name": 5}, {}, "b", {"name": "c"}]
    assert names_in_list(orjson.dumps({"id": 1, "result": {"tools": tools}})) == ["a", "c"]
    for other in (b"{", b"[]", b"{}", b'{"result":[]}', b'{"result":{"tools":{}}}'):
        assert names_in_list(other) == []
