"""Expressions of settings: what they find, and that none takes long to compile or to match."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.expressions import LONGEST, Expression, ExpressionInvalid


def test_an_expression_finds_what_it_says() -> None:
    """Anywhere, or as a whole; each claim is the first group, or all of the match."""
    assert Expression("b+").occurs_in("abbc") and not Expression("b+").is_all_of("abbc")
    assert Expression("ab+c").is_all_of("abbc")
    assert list(Expression(r"wrote (\S+)(!)?").claims("wrote a wrote b!")) == ["a", "b!"]
    assert repr(Expression("b+")) == "<Expression 'b+'>"
    assert list(Expression("b+|(x)").claims("bb x")) == ["", "x"]
    assert list(Expression("b+").claims("bb ab")) == ["bb", "b"]
    assert Expression("ÄB", ignore_case=True).is_all_of("äb")


def test_a_text_that_no_utf_8_can_say_is_matched_all_the_same() -> None:
    """A lone surrogate is a character like any other."""
    assert Expression("a.b").is_all_of("a\ud800b")
    assert list(Expression("(.)b").claims("\ud800b")) == ["\ud800"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("(", "missing )"),
        ("(?=a)b", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?x) ( a + ) + $", "invalid perl operator"),
        ("a" * (LONGEST + 1), "longer than"),
        ("(?:a{1000}){1000}", "invalid repetition size"),
        (r"(?:\pL{100}\pN{100}){5}", "too large"),
    ],
)
def test_what_the_engine_cannot_run_is_refused_with_a_reason(source: str, why: str) -> None:
    """And at once, however much it would repeat."""
    begun = time.process_time()
    with pytest.raises(ExpressionInvalid, match=re.escape(why)):
        Expression(source)
    assert time.process_time() - begun < 0.1


@pytest.mark.parametrize(
    "source", ["(a+)+$", "^(a|a)*$", "((a*)*)*b", "(a?){30}a{30}", "(x+x+)+y", "a{,}a{,}b"]
)
def test_what_takes_others_years_takes_a_moment(source: str) -> None:
    """Time is linear in the text."""
    expression = Expression(source)
    begun = time.process_time()
    expression.occurs_in("a" * 100_000 + "!")
    assert time.process_time() - begun < 0.5


@given(st.text("abc-()[]|*+?{}0123.^$", max_size=14), st.text("ab0-.", max_size=40))
def test_what_both_can_read_both_read_alike(source: str, text: str) -> None:
    """An expression means what it means to Python's own engine."""
    try:
        expression = Expression(source)
        theirs = re.compile(source)
    except (ExpressionInvalid, re.error, FutureWarning):
        return
    assert expression.occurs_in(text) == (theirs.search(text) is not None)
