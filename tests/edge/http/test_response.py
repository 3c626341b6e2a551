"""The fields that the adapter adds to an answer of its own."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.edge.http.response import http_date


@given(st.integers(0, 253402300799))
def test_dates_are_those_of_the_standard_library(seconds: int) -> None:
    """Until the end of the year 9999."""
    assert http_date(seconds) == formatdate(seconds, usegmt=True)


@pytest.mark.parametrize(
    ("seconds", "date"),
    [(0, "Thu, 01 Jan 1970 00:00:00 GMT"), (784111777, "Sun, 06 Nov 1994 08:49:37 GMT")],
)
def test_a_date_has_the_fixed_length_of_the_specification(seconds: int, date: str) -> None:
    """RFC 9110, 5.6.7, has the second example."""
    assert http_date(seconds) == date
