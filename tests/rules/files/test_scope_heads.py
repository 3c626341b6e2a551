"""The head of a scope's files, as it is written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.scope_heads import ScopeHead, decode, encode

numbers = st.integers(0, 2**53)
texts = st.text("0123456789abcdef/", max_size=40)


@given(
    st.builds(
        ScopeHead,
        size=numbers,
        uploads=numbers,
        artifacts=numbers,
        holders=st.dictionaries(texts, st.lists(texts)),
    )
)
def test_head_is_read_as_it_was_written(head: ScopeHead) -> None:
    """Whatever it says."""
    assert decode(encode(head)) == head


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"7", b'{"size":1}', b'{"format":2}', b'{"format":1,"more":1}', b'{"format":99}']
)
def test_what_is_no_head_of_this_version_is_refused(data: bytes) -> None:
    """By one exception."""
    with pytest.raises(ValueError, match=r".*"):
        decode(data)


@pytest.mark.parametrize(
    "head", [ScopeHead(uploads=1), ScopeHead(artifacts=1), ScopeHead(holders={"r": ["upload/1"]})]
)
def test_scope_with_a_file_or_a_use_is_not_empty(head: ScopeHead) -> None:
    """Bytes do not count: a file may have none."""
    assert not head.is_empty
    assert ScopeHead().is_empty
