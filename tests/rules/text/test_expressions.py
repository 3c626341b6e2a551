"""Expressions of settings: what they find, and that none takes long to compile or to match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.expressions import LONGEST, Expression, ExpressionInvalid, Glob, GlobInvalid
from tests.cpu_time import at_most, least_cpu


def test_an_expression_finds_what_it_says() -> None:
    """As a whole; each claim is the first group, or all of the match."""
    assert Expression("ab+c").is_all_of("abbc") and not Expression("b+").is_all_of("abbc")
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

    def refused() -> None:
        with pytest.raises(ExpressionInvalid, match=re.escape(why)):
            Expression(source)

    assert least_cpu(refused) < 0.1


@pytest.mark.parametrize(
    "source", ["(a+)+$", "^(a|a)*$", "((a*)*)*b", "(a?){30}a{30}", "(x+x+)+y", "a{,}a{,}b"]
)
def test_what_takes_others_years_takes_a_moment(source: str) -> None:
    """Time is linear in the text."""
    expression = Expression(source)
    with at_most(0.5):
        expression.is_all_of("a" * 100_000 + "!")


@given(st.text("abc-()[]|*+?{}0123.^$", max_size=14), st.text("ab0-.", max_size=40))
def test_what_both_can_read_both_read_alike(source: str, text: str) -> None:
    """An expression means what it means to Python's own engine."""
    try:
        expression = Expression(source)
        theirs = re.compile(source)
    except (ExpressionInvalid, re.error, FutureWarning):
        return
    assert expression.is_all_of(text) == (theirs.fullmatch(text) is not None)


# --- patterns of dotted names, and that no pattern can take long -------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("users.update", "users.update", True),
        ("users.*", "users.update", True),
        ("users.*", "users", False),
        ("users.*", "users.a.b", False),
        ("users.**", "users", True),
        ("users.**", "users.a.b", True),
        ("**", "anything.at.all", True),
        ("**.get", "a.b.get", True),
        ("**.get", "get", True),
        ("a.**.z", "a.z", True),
        ("a.**.m.**.z", "a.b.m.c.d.z", True),
        ("a.**.m.**.z", "a.b.c.z", False),
        ("*.get", "users.get", True),
        ("users_*", "users_update", True),
        ("users_*", "users_", True),
        ("get-*-by-*", "get-user-by-id", True),
        ("get-*-by-*", "get-user-id", False),
        ("a*", "a.b", False),
        ("a.*.b", "a..b", True),
        ("user", "users", False),
    ],
)
def test_v18_one_star_is_one_segment_two_are_any_number(pattern: str, name: str, matches: bool) -> None:
    """A star within a segment stands for any of its characters."""
    assert Glob(pattern).matches(name) is matches


@pytest.mark.parametrize("pattern", ["", ".", "a.", ".a", "a..b", "a**", "***", "x" * 300])
def test_v18_patterns_are_validated(pattern: str) -> None:
    """A mistake is found at start."""
    with pytest.raises(GlobInvalid):
        Glob(pattern)


SEGMENT = st.text("ab", max_size=3).filter(bool)
PATTERN = st.lists(SEGMENT | st.sampled_from(["*", "**", "a*", "*b", "a*b"]), min_size=1, max_size=5).map(
    ".".join
)
NAME = st.lists(SEGMENT, min_size=1, max_size=6).map(".".join)


def as_expression(pattern: str) -> str:
    """The same pattern as a regular expression over names that end in a dot."""
    parts = [
        r"(?:[^.]+\.)*"
        if segment == "**"
        else (r"[^.]+" if segment == "*" else segment.replace("*", "[^.]*")) + r"\."
        for segment in pattern.split(".")
    ]
    return "".join(parts)


@given(PATTERN, NAME)
def test_v18_globs_match_what_they_say(pattern: str, name: str) -> None:
    """As a regular expression of the same meaning does."""
    assert Glob(pattern).matches(name) is bool(re.fullmatch(as_expression(pattern), name + "."))


@given(PATTERN, PATTERN, NAME)
def test_v18_what_covers_another_matches_all_of_its_names(one: str, other: str, name: str) -> None:
    """There is no name that only the covered one matches."""
    if Glob(one).covers(Glob(other)) and Glob(other).matches(name):
        assert Glob(one).matches(name)


def test_v18_no_match_takes_long() -> None:
    """Whoever writes patterns and names: time is linear in the name."""
    with at_most(1):
        assert Glob("**.a.**.a.**.a.**.a.**.b").matches(".".join("a" * 50_000)) is False
        assert Glob("*a" * 100).matches("a" * 50_000) is True
