"""Paths of values that nobody may read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.redacted_values import PathInvalid, censor_of

HIDDEN = "[REDACTED]"


@pytest.mark.parametrize(
    ("path", "data", "seen"),
    [
        ("ssn", {"ssn": 1, "n": 2}, {"ssn": HIDDEN, "n": 2}),
        ("a.b", {"a": {"b": 1, "c": 2}}, {"a": {"b": HIDDEN, "c": 2}}),
        ("*.ssn", {"x": {"ssn": 1}, "y": {"n": 2}, "z": 3}, {"x": {"ssn": HIDDEN}, "y": {"n": 2}, "z": 3}),
        ("x[*].y", {"x": [{"y": 1}, {"z": 2}]}, {"x": [{"y": HIDDEN}, {"z": 2}]}),
        ("items[0].z", {"items": [{"z": 1}, {"z": 2}]}, {"items": [{"z": HIDDEN}, {"z": 2}]}),
        ('["odd key"].x', {"odd key": {"x": 1}}, {"odd key": {"x": HIDDEN}}),
        ("a['b.c']", {"a": {"b.c": 1}}, {"a": {"b.c": HIDDEN}}),
        ("ssn", [{"ssn": 1}, {"ssn": 2}], [{"ssn": HIDDEN}, {"ssn": HIDDEN}]),
        ("[*].ssn", [{"ssn": 1}], [{"ssn": HIDDEN}]),
        ("a.b", {"a": [{"b": 1}, [{"b": 2}]]}, {"a": [{"b": HIDDEN}, [{"b": HIDDEN}]]}),
        ("a", {"a": {"deep": [1]}}, {"a": HIDDEN}),
        ("a", {"a": None}, {"a": HIDDEN}),
        ("*", {"a": 1, "b": [2]}, {"a": HIDDEN, "b": HIDDEN}),
        ("a.b", {"a": "text"}, {"a": "text"}),
        ("missing.x", {"a": 1}, {"a": 1}),
        ("a", 5, 5),
    ],
)
def test_v16_a_path_hides_what_it_leads_to(path: str, data: Any, seen: Any) -> None:
    """Dots, stars, brackets and quotes; names lead through lists, and a list's paths are its items'."""
    before = json.dumps(data)
    assert censor_of([path])(data) == seen
    assert json.dumps(data) == before


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "a[", "a[x]", "a b", "[]", "a[-1]"])
def test_v16_what_is_no_path_is_refused(path: str) -> None:
    """A path that would lead nowhere does not look like protection."""
    with pytest.raises(PathInvalid):
        censor_of([path])


def test_v16_the_stand_in_is_a_text_or_made_of_the_value() -> None:
    """The last four digits, for example."""
    data = {"card": "4111111111111111", "pin": 1}
    assert censor_of(["card"], "***")(data)["card"] == "***"
    assert censor_of(["card"], lambda value: "**" + value[-4:])(data)["card"] == "**1111"


def test_w14_a_stand_in_that_fails_hides_all_the_same() -> None:
    """Redaction fails closed."""
    assert censor_of(["pin"], lambda value: value + "x")({"pin": 1}) == {"pin": HIDDEN}


def test_v16_what_is_censored_is_not_censored_again() -> None:
    """Two paths to one value show one stand-in."""
    calls: list[Any] = []

    def stand_in(value: Any) -> str:
        calls.append(value)
        return "x"

    censor = censor_of(["a", "*"], stand_in)
    assert censor({"a": "secret"}) == {"a": "x"}
    assert calls == ["secret"]


TREES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


def values_at(data: Any, key: str) -> list[Any]:
    if isinstance(data, dict):
        return [v for k, v in data.items() if k == key] + [
            x for v in data.values() for x in values_at(v, key)
        ]
    return [x for item in data for x in values_at(item, key)] if isinstance(data, list) else []


@given(TREES)
def test_v16_stars_reach_every_level_they_name(data: Any) -> None:
    """With a path for each level no value of that name is left."""
    paths = ["a", "*.a", "*.*.a", "*.*.*.a", "*.*.*.*.a", "*.*.*.*.*.a", "*.*.*.*.*.*.a"]
    assert set(values_at(censor_of(paths)(data), "a")) <= {HIDDEN}
