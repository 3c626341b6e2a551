"""Parts of files: whole characters, and values of JSON documents."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.results.short_json import MOST_STEPS, NothingThere, characters, pointed


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), st.data())
def test_pieces_of_a_text_are_the_text(text: str, data: st.DataObject) -> None:
    """Whatever is asked for, each piece has whole characters, and nothing is missing between two of them."""
    whole, read, at = text.encode(), "", 0
    while at < len(whole):
        size = data.draw(st.integers(4, 9))
        skip = min(at, 3)
        piece = whole[at - skip : at + size]
        found = characters(piece, skip, at_end=at + size >= len(whole))
        assert found is not None and found[0] == skip and found[1]
        read, at = read + found[1], at + len(found[1].encode())
    assert read == text


def test_piece_begins_with_a_whole_character() -> None:
    """Who begins within one gets all of it."""
    whole = "a🙂b".encode()
    assert characters(whole[0:6], 3, at_end=True) == (1, "🙂b")
    assert characters(b"\xff\xfe", 0, at_end=True) is None and characters(b"\xf0\x9f", 0, at_end=True) is None


DOCUMENT = {"a": [1, {"b/c": "x", "m~n": [True]}], "": {"": 0}, "é": None}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/a/0", 1),
        ("/a/1/b~1c", "x"),
        ("/a/1/m~0n/0", True),
        ("/", {"": 0}),
        ("//", 0),
        ("/é", None),
    ],
)
def test_pointer_leads_to_its_value(pointer: str, value: object) -> None:
    """As RFC 6901 says."""
    doc = json.dumps(DOCUMENT, ensure_ascii=False).encode()
    assert json.loads(doc[slice(*pointed(doc, pointer))]) == value


@pytest.mark.parametrize("pointer", ["a", "/b", "/a/2", "/a/-", "/a/01", "/a/0/x", "/a" * (MOST_STEPS + 1)])
def test_pointer_that_leads_nowhere_is_told_so(pointer: str) -> None:
    """With the place where it ends."""
    with pytest.raises(NothingThere):
        pointed(json.dumps(DOCUMENT).encode(), pointer)
