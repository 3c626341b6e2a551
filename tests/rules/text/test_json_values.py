"""Whatever scripts and drivers return, as JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.json_values import (
    MOST_TEXT,
    MOST_VALUES,
    NotJson,
    TooLarge,
    compact,
    indented,
    plain,
    require_size,
)


@dataclass
class Row:
    id: int
    at: date


class Opaque:
    def __str__(self) -> str:
        return "opaque"


class Colour(Enum):
    RED = "red"


ODD: list[tuple[Any, Any]] = [
    (Row(1, date(2026, 1, 2)), {"id": 1, "at": "2026-01-02"}),
    (time(3, 4), "03:04:00"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (MappingProxyType({"a": (1, {2})}), {"a": [1, [2]]}),
    (OrderedDict(b=1, a=deque([2])), {"b": 1, "a": [2]}),
    ({True: 1, 2.5: 3}, {"true": 1, "2.5": 3}),
    (bytearray(b"x"), "x"),
    (memoryview(b"\xff"), "/w=="),
    (float("inf"), None),
    (Decimal("1.10"), "1.10"),
    (Fraction(1, 2), 0.5),
    (Colour.RED, "red"),
    (PurePosixPath("/a/b"), "/a/b"),
    (timedelta(minutes=1), "0:01:00"),
    (ip_address("::1"), "::1"),
]


@pytest.mark.parametrize("value", [Opaque(), Opaque, len, iter(()), 1j, RuntimeError("x"), date])
@pytest.mark.parametrize("spell", [plain, compact, indented])
def test_what_stands_for_no_json_is_refused(value: Any, spell: Callable[[Any], Any]) -> None:
    """Wherever it stands, by its class: its repr would be taken for an answer."""
    for place in (value, [value], {"a": {"b": value}}):
        with pytest.raises(NotJson, match=rf"^{type(value).__name__} cannot be written as JSON\.$"):
            spell(place)


@pytest.mark.parametrize(("value", "said"), ODD)
def test_odd_values_have_one_reading(value: Any, said: Any) -> None:
    """The plain value and both spellings agree on it."""
    assert plain(value) == json.loads(compact(value)) == json.loads(indented(value)) == said


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.decimals(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=15,
)


@given(ANY)
def test_the_plain_value_is_what_the_text_says(value: Any) -> None:
    """However it was spelled, whoever parses the text has the plain value."""
    assert json.loads(compact(value)) == json.loads(indented(value)) == json.loads(json.dumps(plain(value)))


def test_the_plain_value_shares_nothing() -> None:
    """Who changes it changes nothing of the tool's."""
    value = {"a": [1]}
    plain(value)["a"].append(2)
    assert value == {"a": [1]}


def test_what_never_ends_is_refused() -> None:
    """In every spelling, with a reason."""
    endless: dict[str, Any] = {}
    endless["self"] = endless
    for spell in (plain, compact, indented):
        with pytest.raises(NotJson):
            spell(endless)


class Members:
    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


@pytest.mark.parametrize(
    "value",
    [
        "x" * (MOST_TEXT + 1),
        ["x" * (MOST_TEXT // 2)] * 3,
        {"a": {"b": ("x" * MOST_TEXT, "y")}},
        {"x" * (MOST_TEXT + 1): 1},
        b"x" * (MOST_TEXT + 1),
        bytearray(MOST_TEXT + 1),
        OrderedDict(a="x" * (MOST_TEXT + 1)),
        Row(1, cast(date, "x" * (MOST_TEXT + 1))),
        Members(a="x" * (MOST_TEXT + 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text_without_end_is_refused(value: Any) -> None:
    """However it is wrapped, before anything of it is written."""
    with pytest.raises(TooLarge, match=f"has more than {MOST_TEXT} characters"):
        require_size(value)


@pytest.mark.parametrize(
    "value",
    [
        [0] * (MOST_VALUES + 1),
        [[0] * 1_000] * (MOST_VALUES // 1_000 + 1),
        [{"a": 1, "b": 2}] * (MOST_VALUES // 2),
        {str(number): None for number in range(MOST_VALUES + 1)},
        deque([0] * (MOST_VALUES + 1)),
        set(range(MOST_VALUES + 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_end_are_refused(value: Any) -> None:
    """Also those that hold themselves."""
    with pytest.raises(TooLarge, match=f"has more than {MOST_VALUES} values"):
        require_size([value])


def test_what_holds_itself_has_an_end() -> None:
    """Where it is counted too."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TooLarge):
        require_size(endless)


@given(ANY)
def test_an_ordinary_value_is_large_enough(value: Any) -> None:
    """Nothing is refused that is not large."""
    require_size(value)
