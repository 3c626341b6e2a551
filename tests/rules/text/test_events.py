"""Events of the log: bounded in every direction, writable, and without secrets."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.events import LONGEST_EVENT, LONGEST_TEXT, LONGEST_TRACEBACK, writable

MOST_BYTES = 100_000
"""Bytes of a line: LONGEST_EVENT characters, each at most six bytes, and what stands around them."""


def size(event: dict[str, Any]) -> int:
    return len(orjson.dumps(writable(event)))


@pytest.mark.parametrize("key", ["token", "Set-Cookie", "session_id"])
def test_values_under_telling_keys_are_masked(key: str) -> None:
    """The key decides, at any depth and for any kind of value."""
    nested = {key: ["s3cret"], "list": [{key: 5}], "on": {key: True}}
    assert writable({"event": "e", key: "s3cret", "more": nested}) == {
        "event": "e",
        key: "***",
        "more": {key: "***", "list": [{key: "***"}], "on": {key: True}},
    }


def test_a_small_event_stays_as_it_is() -> None:
    """Numbers, nulls and nested values too."""
    event = {"event": "e", "n": 1, "x": 1.5, "none": None, "list": [1, "a", {"b": True}]}
    assert writable(event) == event


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        "\x00" * 1_000_000,
        b"x" * 1_000_000,
        ["x" * 1000] * 1000,
        {f"{n}{'k' * 1000}": "v" * 1000 for n in range(1000)},
        [[["x" * 1000] * 100] * 100] * 100,
        10**5000,
        {1: object, (2, 3): RuntimeError("x" * 100_000)},
    ],
    ids=["text", "controls", "bytes", "list", "mapping", "depth", "integer", "objects"],
)
def test_an_event_is_bounded_whatever_is_in_it(value: Any) -> None:
    """In length, depth, members and bytes; and what stands beside it is still there."""
    event = writable({"event": "e", "value": value, "level": "info"})
    assert len(orjson.dumps(event)) < MOST_BYTES
    assert (event["event"], event["level"]) == ("e", "info")


def test_a_value_that_holds_itself_ends() -> None:
    """Depth is bounded, so nobody needs to look for circles."""
    circle: list[Any] = []
    circle.append(circle)
    assert size({"circle": circle}) < 200


def test_many_long_values_share_one_budget() -> None:
    """No event is longer than all of its texts may be together."""
    texts = list(writable({f"k{n}": "x" * LONGEST_TEXT for n in range(40)}).values())
    assert sum(map(len, texts)) < LONGEST_EVENT + 100


def test_of_a_long_traceback_both_ends_are_kept() -> None:
    """Its end says what happened, its beginning where."""
    lines = "\n".join(f"line {n}" for n in range(100_000))
    shown = writable({"exception": lines})["exception"]
    assert len(shown) <= LONGEST_TRACEBACK
    assert shown.startswith("line 0\n") and shown.endswith("line 99999")


def test_a_short_traceback_is_whole() -> None:
    """Also one that is longer than a name may be."""
    lines = "\n".join(f"line {n}" for n in range(200))
    assert writable({"exception": lines}) == {"exception": lines}


def test_no_secret_is_cut_in_two() -> None:
    """A user's part of a URL is known by what stands behind it, so more is read than is shown."""
    text = "x" * (LONGEST_TEXT - 20) + " https://ada:hunter2-hunter2@host/"
    assert "hunter" not in writable({"url": text})["url"]


def test_a_lone_surrogate_is_an_escape() -> None:
    """In names and in values: JSON can spell it, no line of UTF-8 can."""
    assert writable({"a\ud800": "b\udfff"}) == {"a\\ud800": "b\\udfff"}


class Broken:
    def __str__(self) -> str:
        raise ValueError


def test_what_cannot_be_said_is_its_kind() -> None:
    """Somebody's code fails no line."""
    assert writable({"it": Broken()}) == {"it": "<Broken>"}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=50,
)


@given(st.dictionaries(st.text(), ANYTHING))
def test_every_event_can_be_written(event: dict[str, Any]) -> None:
    """Nothing in it breaks a line of the log."""
    assert size(event) < MOST_BYTES
