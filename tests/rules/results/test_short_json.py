"""Shorter JSON: it stays JSON, fits its room, and is a beginning of what it was."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.results.short_json import MORE, Keeps, beginning, json_in, shortened
from adapter.wire.envelope import dump
from tests.cpu_time import least_cpu

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["🙂" * 200, '"\\' * 150, "é" * 300]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)
SPELLED: list[dict[str, Any]] = [{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}]


def is_beginning(short: Any, whole: Any, keeps: Keeps) -> bool:
    """True for a value of which lists end earlier, texts are cut and, for want of room, members are missing."""
    if isinstance(whole, str) and isinstance(short, str):
        return short == whole or (short.endswith(MORE) and whole.startswith(short[: -len(MORE)]))
    if isinstance(whole, list) and isinstance(short, list):
        return len(short) <= len(whole) and all(map(is_beginning, short, whole, [keeps] * len(short)))
    if isinstance(whole, dict) and isinstance(short, dict):
        names = short.keys() <= whole.keys() if keeps == "room" else short.keys() == whole.keys()
        return names and all(is_beginning(short[key], whole[key], keeps) for key in short)
    return type(short) is type(whole) and short == whole


@given(VALUES, st.sampled_from(SPELLED), st.integers(2, 3000), st.sampled_from(["members", "room"]))
def test_value_is_shorter_and_still_json(value: Any, spelled: dict[str, Any], room: int, keeps: str) -> None:
    """Whatever it is and however it is spelled, no character and no text is broken."""
    doc = json.dumps(value, **spelled).encode()
    short = shortened(doc, (0, len(doc)), room, cast(Keeps, keeps))
    if short is None:
        assert room < len(doc)
        return
    assert len(short) <= room
    assert is_beginning(json.loads(short.decode("utf-8")), json.loads(doc), cast(Keeps, keeps))
    if len(doc) <= room:
        assert short == doc


@given(st.text(max_size=200), st.integers(2, 400))
def test_beginning_of_a_text_is_as_long_as_may_be(text: str, room: int) -> None:
    """With one character more it would not fit, a lone surrogate among them."""
    found = beginning(text, room)
    assert text.startswith(found) and len(dump(found)) <= room
    assert found == text or len(dump(text[: len(found) + 1])) > room


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        (b' {"a": [1]} \n', True),
        (b"[1]", True),
        (b"[WARN] disk is full", False),
        (b'{"a":1}\n{"a":2}', False),
        (b'"a string"', True),
        (b'"Well", she said.', False),
        (b"12", False),
        (b"{", False),
        (b"", False),
    ],
)
def test_text_that_is_json(text: bytes, is_json: bool) -> None:
    """Logs and lines of JSON only begin like it."""
    assert (json_in(text) is not None) == is_json


def test_first_items_stay_whole() -> None:
    """A list ends earlier before anything of its first items is left out."""
    doc = json.dumps({"rows": [{"id": n, "text": "x" * 50} for n in range(1000)], "total": 1000}).encode()
    short = json.loads(shortened(doc, (0, len(doc)), 500, "members") or b"")
    assert (
        short["total"] == 1000 and short["rows"][0] == {"id": 0, "text": "x" * 50} and len(short["rows"]) > 3
    )


@pytest.mark.timed
@pytest.mark.parametrize("keeps", ["members", "room"])
@pytest.mark.parametrize("kind", ["rows", "deep", "objects"])
def test_cost_grows_with_the_size(kind: str, keeps: Keeps) -> None:
    """Four times as much takes about four times as long, however it is nested."""

    def doc(size: int) -> bytes:
        if kind == "rows":
            return b"[" + b",".join([b'{"a":"%b","b":[1,2,3]}' % (b"x" * 50)] * (size // 70)) + b"]"
        if kind == "deep":
            return b'{"a":' * 500 + b'"' + b"x" * size + b'"' + b"}" * 500
        return b"{" + b",".join(b'"k%d":{"a":{"b":{"c":1}}}' % n for n in range(size // 30)) + b"}"

    small, large = doc(1 << 20), doc(1 << 22)
    times = [least_cpu(partial(shortened, each, (0, len(each)), 4096, keeps)) for each in (small, large)]
    assert times[1] < 12 * times[0] + 0.05
