"""JSON at any depth that the parser reads: it is written as a serializer would write it, were it not so deep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.wire.envelope import dump, parse
from adapter.wire.nesting import DEEP_VALUES, _dump_deep, dump_odd

TEXTS = st.text(st.characters(categories=["L", "N", "Cs", "Cc", "P"]), max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int, innermost: Any = 1) -> Any:
    value = innermost
    for level in range(depth):
        value = {"a": value, "b": [level]} if level % 2 else [value, {}]
    return value


@given(VALUES, st.booleans())
def test_deep_json_is_written_as_the_serializer_writes_it(value: Any, sort_keys: bool) -> None:
    """To the byte, so that its digest does not depend on how deep the caller's own stack is."""
    assert _dump_deep(value, sort_keys) == json.dumps(value, sort_keys=sort_keys)


@pytest.mark.parametrize("depth", [100, 254, 255, 900, 1000, 1023])
def test_whatever_is_read_is_written(depth: int) -> None:
    """Every depth that is read, with and without half a character in it."""
    for body in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b'"\\ud800"' + b"}" * depth):
        try:
            value = parse(body)
        except BadJson:
            assert b"ud800" in body and depth > 800
        else:
            assert dump(value).replace(b" ", b"") == body
            assert dump_odd(value, sort_keys=True).replace(b" ", b"") == body


def test_keys_are_sorted_at_every_depth() -> None:
    """Two spellings of the same arguments have one digest."""
    one, other = {"b": 1, "a": nested(1200)}, {"a": nested(1200), "b": 1}
    assert dump_odd(one, sort_keys=True) == dump_odd(other, sort_keys=True)
    assert dump_odd(one) != dump_odd(other)


def test_deep_json_has_so_many_values() -> None:
    """What takes ten times as long for each has fewer of them; what is not so deep has no such limit."""
    many = [0] * DEEP_VALUES
    with pytest.raises(BadJson, match=f"{DEEP_VALUES} values"):
        dump_odd(nested(1200, many))
    assert dump_odd(many) == json.dumps(many).encode()
