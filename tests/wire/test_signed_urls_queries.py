"""The query of a request on its way to an upstream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import TargetTooLong
from adapter.wire.signed_urls import LONGEST_QUERY, forwardable_query, is_query


@pytest.mark.parametrize("query", ["", "a=1&b=2", "a=%20%c3%A9+b", "?/:@!$'()*+,;=~", "a=b=c&&"])
def test_a_valid_query_passes_as_it_came(query: str) -> None:
    """Not one character is encoded or decoded."""
    assert forwardable_query(query) == query


@pytest.mark.parametrize(
    ("came", "sent"),
    [
        ('a="b"', "a=%22b%22"),
        ("a=<b>|{}\\^`", "a=%3Cb%3E%7C%7B%7D%5C%5E%60"),
        ("x[]=1", "x%5B%5D=1"),
        ("a=\xff", "a=%FF"),
        ("100%", "100%25"),
        ("a=%zz%4", "a=%25zz%254"),
        ("a=1#part", "a=1"),
        ("a=1 HTTP/1.1\r\nX-Evil: 1", "a=1%20HTTP/1.1%0D%0AX-Evil:%201"),
    ],
)
def test_what_cannot_stand_in_a_query_is_encoded(came: str, sent: str) -> None:
    """A fragment is no part of a request at all."""
    assert forwardable_query(came) == sent


@given(st.text(st.characters(max_codepoint=255), max_size=200))
def test_nothing_but_a_valid_query_leaves(came: str) -> None:
    """Whatever bytes came; and what leaves would leave the same a second time."""
    sent = forwardable_query(came)
    assert is_query(sent) and sent.isascii()
    assert forwardable_query(sent) == sent


def test_a_query_has_an_end() -> None:
    """Also one that only grows too long by being encoded."""
    assert forwardable_query("a" * LONGEST_QUERY)
    for query in ("a" * (LONGEST_QUERY + 1), '"' * (LONGEST_QUERY // 2)):
        with pytest.raises(TargetTooLong, match=str(LONGEST_QUERY)):
            forwardable_query(query)
