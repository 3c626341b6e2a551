"""TOON: the shapes of values a model is sent in fewer tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.presenters.toon import toon
from adapter.rules.text.json_values import NotJson


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"id": 1, "name": "A"}, {"id": 2, "name": "B"}], "[2|]{id|name}:\n  1|A\n  2|B"),
        ({"id": 1, "name": "Ada", "on": True, "x": None}, "id: 1\nname: Ada\non: true\nx: null"),
        ({"user": {"tags": ["a", "b"], "no": {}}}, "user:\n  tags[2|]: a|b\n  no:"),
        ({"items": [{"id": 1}, {"id": 2, "n": "x"}]}, "items[2|]:\n  - id: 1\n  - id: 2\n    n: x"),
        ({"a": [{"b": {"c": 1}}]}, "a[1|]:\n  - b:\n      c: 1"),
        ({"a": [{"u": [{"i": 1}], "s": 2}]}, "a[1|]:\n  - u[1|]{i}:\n      1\n    s: 2"),
        ([[1, 2], []], "[2|]:\n  - [2|]: 1|2\n  - [0|]:"),
        (["s", {"a": 1}, [{"b": 2}]], "[3|]:\n  - s\n  - a: 1\n  - [1|]:\n    - b: 2"),
        ([{}, 1], "[2|]:\n  -\n  - 1"),
        ([], "[0|]:"),
        ({}, ""),
        (["a|b", "c,d", "", " x", "-1", "05", "true", "#x", "a: b"], None),
        (1e6, "1000000"),
        (1e-7, "0.0000001"),
        (-0.0, "0"),
        ({"full name": 1, "a.b": 2}, '"full name": 1\na.b: 2'),
        ("two\nlines", '"two\\nlines"'),
    ],
)
def test_v23_values_have_these_texts(value: Any, text: str | None) -> None:
    """Tables for lists of equal objects, hyphens for others, quotes only where something could be misread."""
    if text is None:
        text = '[9|]: "a|b"|c,d|""|" x"|"-1"|"05"|"true"|"#x"|"a: b"'
    assert toon(value) == text


@given(
    st.lists(
        st.builds(lambda number, text: {"id": number, "text": text}, st.integers(), st.text()), min_size=1
    )
)
def test_v23_a_table_has_one_line_for_each_row(rows: list[dict[str, Any]]) -> None:
    """Whatever is in a text, it stays in its cell."""
    lines = toon(rows).split("\n")
    assert lines[0] == f"[{len(rows)}|]{{id|text}}:"
    assert len(lines) == len(rows) + 1


def test_a_value_beyond_all_measure_is_refused() -> None:
    """Nesting that no reader could follow fails with a reason."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotJson):
        toon(deep)
