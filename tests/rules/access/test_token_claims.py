"""Claims of tokens: times, scopes, and bounds, whatever strangers write into them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.token_claims import (
    DEEPEST,
    MOST_VALUES,
    is_bounded,
    moment,
    read_object,
    scopes_of,
    texts,
    untimely,
    values_in,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
CLAIMS = st.dictionaries(st.sampled_from(["exp", "nbf", "iat", "scope", "scp", "aud"]), JSON)


@given(CLAIMS, st.floats(0, 4e9), st.floats(0, 300))
def test_any_claims_can_be_judged(claims: dict[str, Any], now: float, leeway: float) -> None:
    """Nothing in them raises, and what holds has an end that is not over and no beginning that is to come."""
    scopes_of(claims)
    texts(claims.get("aud"))
    if untimely(claims, now, leeway) is None:
        end = moment(claims["exp"])
        assert end is not None
        assert now < end + leeway


@given(st.floats(1, 2e9), st.floats(0, 300))
def test_a_token_holds_until_its_end_and_the_leeway(end: float, leeway: float) -> None:
    """And not a moment longer."""
    claims = {"exp": end}
    assert untimely(claims, end + leeway, leeway) == "the token has expired"
    assert untimely(claims, end - 1, leeway) is None


@pytest.mark.parametrize("value", [True, "1", None, [1], 10**400, float("inf"), float("nan")])
def test_what_is_no_number_of_seconds_is_no_moment(value: Any) -> None:
    """RFC 7519 §2, NumericDate."""
    assert moment(value) is None
    assert untimely({"exp": value}, 0.0, 0.0) == "the token does not say when it expires"


def test_only_blanks_separate_scopes() -> None:
    """What another white space joins is one name, which nobody demands."""
    assert scopes_of({"scope": " a  b ", "scp": ["c", 7, "d"]}) == {"a", "b", "c", "d"}
    assert scopes_of({"scope": "a\u2003admin\tx"}) == {"a\u2003admin\tx"}


def levels(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_and_number_are_bounded() -> None:
    """Whoever walks through claims does not come to an end of its stack."""
    assert is_bounded(levels(DEEPEST))
    assert not is_bounded(levels(DEEPEST + 1))
    assert not is_bounded(levels(900))
    assert is_bounded({str(number): 1 for number in range(MOST_VALUES - 1)})
    assert not is_bounded([[1] * 100] * (MOST_VALUES // 100 + 1))


def test_values_are_counted_with_those_that_hold_them() -> None:
    """Names of members are none."""
    assert values_in(1) == values_in({}) == 1
    assert values_in({"a": [1, {"b": None}], "c": {}}) == 6
    assert values_in([1] * (MOST_VALUES - 1)) == MOST_VALUES


@given(JSON)
def test_small_values_are_within_the_bounds(value: Any) -> None:
    """What honest issuers write is nowhere near them."""
    assert is_bounded(value)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"a": ' + b"[" * 30 + b"]" * 30 + b"}", "nested too deep"),
        (b'{"a": ' + b"[" * 3000 + b"]" * 3000 + b"}", "is not JSON"),
        (b'{"a": [' + b"1," * MOST_VALUES + b"1]}", "more than"),
    ],
)
def test_what_is_no_object_within_bounds_is_refused(document: bytes, why: str) -> None:
    """The sentence holds nothing of it."""
    with pytest.raises(ValueError, match=why):
        read_object(document)


@given(st.dictionaries(st.text(), st.integers(-(2**53), 2**53) | st.text()))
def test_an_object_is_read_as_it_was_written(written: dict[str, Any]) -> None:
    """Also with surrogates that are no characters."""
    assert read_object(json.dumps(written).encode()) == written
