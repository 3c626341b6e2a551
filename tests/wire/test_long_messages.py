"""Long messages in pieces: the value is the one that the parser makes at once, and no piece is long."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.wire.envelope import parse
from adapter.wire.long_messages import DEEPEST_LONG, LONG, MOST_VALUES, parsed
from adapter.wire.outline import TooManyItems
from adapter.wire.piecewise import at_once
from adapter.wire.scan import TEXT

LONG_TEXTS = ["x" * (LONG + 1), 'a "b" \\ c\n' * (LONG // 8), "日本語😀" * (LONG // 12)]
leaves = st.one_of(
    st.sampled_from([None, True, 0, -1.5, "", "a,b", "[{", '"', "\\", *LONG_TEXTS]), st.integers(-9, 10**9)
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "ä", 'q"', "", "z" * 300]), inner, max_size=4),
    ),
    max_leaves=12,
)
Writer = Callable[[Any], str]
writers: st.SearchStrategy[Writer] = st.one_of(
    st.just(json.dumps),
    st.just(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))),
    st.just(lambda value: json.dumps(value, indent=1)),
)


@given(values, writers)
def test_the_value_is_the_one_of_the_parser(value: Any, written: Writer) -> None:
    """However long values lie among short ones, and whatever stands between them."""
    text = written({"short": value, "list": [value, 1, "", value], "long": LONG_TEXTS[1]}).encode()
    assert at_once(parsed(text)) == parse(text)


@pytest.mark.parametrize("change", ["1 ", ",", "]", "[", '"', "}", ":", "x", "\\"])
@pytest.mark.parametrize("at", [0, 1, 2, 10, 11, 12, 13, 14, -2, -1])
def test_what_is_no_json_is_none_in_pieces(change: str, at: int) -> None:
    """A character that does not belong there ends in BadJson, between long items too; a value is never made up."""
    for text in (
        json.dumps([1, LONG_TEXTS[0], 23, LONG_TEXTS[1], []]),
        json.dumps({"a": LONG_TEXTS[0], "b": [1]}),
    ):
        doc = (text[:at] + change + text[at:]).encode()
        try:
            expected = orjson.loads(doc)
        except orjson.JSONDecodeError:
            with pytest.raises(BadJson):
                at_once(parsed(doc))
        else:
            assert at_once(parsed(doc)) == expected


@pytest.mark.parametrize(
    "doc",
    [
        b'[1 "%b"]' % (b"x" * LONG), b'[12 "%b"]' % (b"x" * LONG), b'[1,,"%b"]' % (b"x" * LONG),
        b"[%b,]" % (b"12," * LONG), b'{"a":"%b",}' % (b"x" * LONG), b'["%b\n"]' % (b"x" * LONG),
        b"[" * 100_000 + b"]" * 100_000, b'{"%b":1}' % (b"x" * 2 * LONG), b"", b"[%b" % (b"1," * LONG),
        b"1" * 3 * LONG,
    ],
)  # fmt: skip
def test_odd_documents_are_refused(doc: bytes) -> None:
    """Missing and surplus commas, line ends in strings, names and words that are long, and endless nesting."""
    with pytest.raises(BadJson):
        at_once(parsed(doc))


def test_a_long_text_is_read_in_many_pieces() -> None:
    """Others have their turn after each of them."""
    work = parsed(orjson.dumps({"result": {"content": [{"type": "text", "text": "line\n" * (1 << 20)}]}}))
    pieces = sum(1 for _ in work)
    assert pieces > (5 << 20) // TEXT


def test_deep_values_are_read_as_far_as_they_are_short() -> None:
    """Below the levels at which values may be long there are others, with short values."""
    deep = json.dumps({"long": LONG_TEXTS[0], "deep": 1}).replace("1}", "[" * 90 + "]" * 90 + "}").encode()
    assert at_once(parsed(deep)) == parse(deep)
    text = b'"%b"' % (b"x" * 2 * LONG)
    levels = DEEPEST_LONG + 1
    with pytest.raises(BadJson):
        at_once(parsed(b"[" * levels + text + b"]" * levels))
    assert at_once(parsed(b"[" * 30 + text + b"]" * 30)) == parse(b"[" * 30 + text + b"]" * 30)


@pytest.mark.parametrize("unit", [b"1", b"[]", b'{"a":{}}', b'""'])
def test_too_many_values_are_refused_early(unit: bytes) -> None:
    """A message of nothing but values is given up when they are too many."""
    few = b"[%b]" % b",".join([unit] * (MOST_VALUES // 8))
    assert at_once(parsed(few)) == parse(few)
    with pytest.raises(TooManyItems):
        at_once(parsed(b"[%b]" % b",".join([unit] * (MOST_VALUES + 1))))
