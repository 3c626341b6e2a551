"""In which members two JSON values differ."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.canonical_json import ABSENT, canonical, differences
from tests.cpu_time import at_most

values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.floats(0, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]),
        ({"b": 1}, {"a": 1}, ["a", "b"]),
        ({"required": ["x"]}, {"required": ["x", "y"]}, ["required"]),
        ({"anyOf": [{"type": "x"}, {}]}, {"anyOf": [{"type": "y"}, {}]}, ["anyOf[0].type"]),
        ({"a": {}}, {"a": []}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": "1"}, {"a": 1}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({"a": 1.0, "b": "ﬁ"}, {"a": 1, "b": "fi"}, []),
        ({"a.b": {"\u202e": 1}}, {"a.b": {"\u202e": 2}}, ['["a.b"]["\\u202e"]']),
        ({"x" * 999: 1}, {}, ['["' + "x" * 62 + "…]"]),
    ],
)
def test_paths(old: Any, new: Any, paths: list[str]) -> None:
    """Each difference is named once, where it is."""
    assert [difference.path for difference in differences(old, new)] == paths


@given(values, values)
def test_there_is_a_difference_exactly_where_the_canonical_forms_differ(old: Any, new: Any) -> None:
    """None is missed, none is made up."""
    found = list(differences(old, new))
    assert bool(found) == (canonical(old) != canonical(new))
    for difference in found:
        if ABSENT not in (difference.old, difference.new):
            assert canonical(difference.old) != canonical(difference.new)


def test_depth_is_no_matter() -> None:
    """Hostile values take no stack, and their paths no room."""
    old: Any = 1
    new: Any = 2
    for _ in range(100_000):
        old, new = {"not": {"anyOf": [old]}}, {"not": {"anyOf": [new]}}
    with at_most(5):
        (found,) = differences(old, new)
    assert found.path.startswith("not.anyOf[0].not.") and found.path.endswith("…") and len(found.path) < 200
