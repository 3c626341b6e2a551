"""The head of a scope's files, as it is written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.scope_heads import Holders, decode, encode

texts = st.text("0123456789abcdef/", max_size=40)


@given(st.dictionaries(texts, st.lists(texts)))
def test_head_is_read_as_it_was_written(holders: Holders) -> None:
    """Whatever it says."""
    assert decode(encode(holders)) == holders


def test_head_of_an_earlier_version_is_read() -> None:
    """It also counted the files."""
    head = b'{"format":1,"size":5,"uploads":1,"artifacts":0,"holders":{"a":["upload/1"]},"writer":"a"}'
    assert decode(head) == {"a": ["upload/1"]}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b'{"size":1}', b'{"format":2}', b'{"format":1,"more":1}', b'{"format":99}']
)
def test_what_is_no_head_of_this_version_is_refused(data: bytes) -> None:
    """By one exception."""
    with pytest.raises(ValueError, match=r".*"):
        decode(data)
