"""One spelling for each JSON value."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.rules.text.canonical_json import canonical
from adapter.wire.envelope import parse
from tests.cpu_time import at_most

anything = st.text(st.characters(exclude_categories=[]), max_size=8)
# A key that is in NFKC is so in every other spelling of it.
keys = st.text(st.characters(max_codepoint=0x24F), max_size=4).filter(
    lambda text: unicodedata.normalize("NFKC", text) == text
)
scalars = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | anything
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)
)
values_of_any_keys = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(anything, inner, max_size=4)
)


def shuffled(value: Any, order: random.Random) -> Any:
    """The same value, its members in another order."""
    if isinstance(value, dict):
        members = list(value.items())
        order.shuffle(members)
        return {key: shuffled(item, order) for key, item in members}
    return [shuffled(item, order) for item in value] if isinstance(value, list) else value


def respelled(value: Any) -> Any:
    """The same value with its numbers and texts spelled in another way."""
    if isinstance(value, dict):
        return {unicodedata.normalize("NFD", key): respelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [respelled(item) for item in value]
    if isinstance(value, str):
        return unicodedata.normalize("NFKD", value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and float(value) == value:
        return float(value)
    return value


@given(values, st.randoms(use_true_random=False))
def test_order_of_keys_does_not_count(value: Any, order: random.Random) -> None:
    """Members are sorted."""
    assert canonical(shuffled(value, order)) == canonical(value)


@given(values)
def test_spelling_does_not_count(value: Any) -> None:
    """1.0 is 1, and what is equal after NFKC is equal."""
    assert canonical(respelled(value)) == canonical(value)


@given(values_of_any_keys)
@example({"2": {"²": 1}, "²": 2})
def test_canonical_json_is_json_of_itself(value: Any) -> None:
    """It is read back as what it says, with as many members, and has no other form then."""
    text = canonical(value)
    assert canonical(parse(text)) == text
    json.loads(text)


@given(scalars, scalars)
def test_scalars_differ_as_they_are_read(one: Any, other: Any) -> None:
    """Two have one form only if they are one number, one text but for NFKC, or one word."""
    if canonical(one) != canonical(other):
        return
    if isinstance(one, str):
        assert unicodedata.normalize("NFKC", one) == unicodedata.normalize("NFKC", other)
    else:
        assert isinstance(one, bool) == isinstance(other, bool)
        assert one is other or float(one) == float(other)


@pytest.mark.parametrize(
    ("number", "spelled"),
    [
        ("1e21", "1e+21"),
        ("1E2", "100"),
        ("-0.0", "0"),
        ("333333333.33333329", "333333333.3333333"),
        ("4.50", "4.5"),
        ("2e-3", "0.002"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1e-27", "1e-27"),
        ("123456789012345680000", "123456789012345680000"),
        ("5e-324", "5e-324"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("9007199254740993", "9007199254740993"),
        ("18446744073709551616", "18446744073709552000"),
        ("1e400", "1e999"),
        ("-1e400", "-1e999"),
        ("9" * 500, "1e999"),
    ],
)
def test_numbers(number: str, spelled: str) -> None:
    """RFC 8785, appendix B, and what it leaves out; alone, in a list, and beside what has to be escaped."""
    assert canonical(parse(number.encode())) == spelled.encode()
    assert canonical(parse(b"[%b]" % number.encode())) == b"[%b]" % spelled.encode()
    odd = b'["\\ud800",%b]'
    assert canonical(parse(odd % number.encode())) == odd % spelled.encode()


def test_texts() -> None:
    """RFC 8785, section 3.2.3: keys by UTF-16, the fewest escapes."""
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}
    # U+FB33 becomes two letters in NFKC, which sort before the emoji.
    assert canonical(value) == '{"\\r":2,"1":4,"\x80":6,"ö":7,"\u05d3\u05bc":3,"€":1,"😀":5}'.encode()
    assert canonical("\x00\x1f\"\\/\b\f\n\t\x7f<'\u2028\ud83d") == (
        '"\\u0000\\u001f\\"\\\\/\\b\\f\\n\\t\x7f<\'\u2028\\ud83d"'.encode()
    )


def test_keys_that_would_become_one_stay_as_they_are() -> None:
    """A reader of the text finds each of them, in an order that does not depend on theirs; others change."""
    form = '{"fi":2,"ﬁ":1,"fl":3}'.encode()
    assert canonical({"ﬂ": 3, "ﬁ": 1, "fi": 2}) == canonical({"fi": 2, "ﬂ": 3, "ﬁ": 1}) == form


@pytest.mark.parametrize("link", [b'{"a":', b"["])
def test_depth_is_no_matter(link: bytes) -> None:
    """A hundred thousand levels take no stack and linear time."""
    value: Any = "x" * 10**6
    for _ in range(100_000):
        value = {"a": value} if link == b'{"a":' else [value]
    with at_most(5):
        text = canonical(value)
    assert text.startswith(link * 100_000 + b'"xxx')
