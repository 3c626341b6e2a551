"""No expression of the house takes longer than a scan of the text, times a number that does not grow with the text.

Expressions that strangers or settings bring are none of these: they run on an engine that is linear by construction,
see tests/rules/text/test_expressions.py.
"""

from __future__ import annotations

import re
import signal
import time
from fnmatch import translate
from functools import cache
from types import FrameType
from typing import Any

import pytest

from adapter.rules.eras import modern_server
from adapter.rules.files import filenames as spellings
from adapter.rules.tools import visibility as policies
from tests.expressions import Expression, house, made_of_values, misread, worst_texts

LONG = 40_000
"""Characters of a text that a stranger may send where an expression meets it."""

SHORT = 500
"""Characters that suffice to see which of all the texts are the worst."""

WORST = 4
"""Texts of each expression that are tried at full length."""

RATIO = 1_000
"""Times the CPU of a plain scan. What grows with the square of the text takes some ten thousand times as much."""

BUILT = [
    Expression(
        "rules.files.filenames:any_of", spellings.any_of(("/srv/a b/store", "C:\\store")), ("search",)
    ),
    Expression("rules.files.filenames:_spelling", spellings._spelling("é"), ("match",)),
    Expression("rules.tools.visibility:_longer", policies._longer(256, 2000), ("search",)),
    Expression("rules.statements.sql:line_end", re.compile(r"[^\n\r]*"), ("match",)),
    *(
        Expression(f"rules.eras.modern_server:{name}", member, ("sub",))
        for name, member in modern_server._MEMBERS.items()
    ),
    # The globs of `stages`, which Python makes expressions of.
    Expression("settings.servers:fits", re.compile(translate("*a*_a?*a[[]*b")), ("match",)),
]
"""Expressions that are made of what a function is given, as they are made."""


def run(expression: Expression, text: Any) -> None:
    for method in expression.methods:
        if method in ("sub", "subn"):
            getattr(expression.compiled, method)(lambda _: text[:0], text)
        elif method == "finditer":
            for _ in expression.compiled.finditer(text):
                pass
        else:
            getattr(expression.compiled, method)(text)


@cache
def plain_scan() -> float:
    """Seconds of CPU that one look at each of LONG characters takes here, counted over many: clocks may be coarse."""
    scan, text, times = re.compile(r"(?:[a-z]|.)*+"), "a-" * (LONG // 2), 200
    begun = time.process_time()
    for _ in range(times):
        scan.fullmatch(text)
    return (time.process_time() - begun) / times


class _Over(Exception):
    """The time is over."""


def taken(expression: Expression, text: Any, most: float) -> float:
    """Seconds of CPU, more than ``most`` for one that was stopped there: expressions look for signals as they run."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Over

    before = signal.signal(signal.SIGVTALRM, stop)
    begun = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, most)
        run(expression, text)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Over:
        return max(time.process_time() - begun, most * 1.01)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.process_time() - begun


def slowest(expression: Expression, allowed: float) -> str | None:
    """The first text that takes too long, as it can be read; None where none does."""
    short: list[tuple[float, int]] = []
    for number, text in enumerate(worst_texts(expression.compiled, SHORT)):
        if (seconds := taken(expression, text, allowed)) > allowed:
            return repr(text[:60])
        short.append((seconds, number))
    worst = {number for _, number in sorted(short, reverse=True)[:WORST]}
    for number, text in enumerate(worst_texts(expression.compiled, LONG)):
        if number in worst and taken(expression, text, allowed) > allowed:
            return repr(text[:60])
    return None


SHARES = 8
"""Tests into which the expressions are divided."""


@cache
def expressions() -> list[Expression]:
    """All of them; not found before a test asks, since all modules of the house are imported and parsed for it."""
    return [*house(), *BUILT]


def test_all_of_the_house_are_found() -> None:
    """A module that makes them of values is one of those whose expressions are given above."""
    assert len(expressions()) > 100
    given = {f"adapter.{one.where.partition(':')[0]}" for one in BUILT}
    # Those of secrets are held by names, and so are found.
    assert made_of_values() <= {*given, "adapter.rules.text.events"}


@pytest.mark.timed
@pytest.mark.parametrize("share", range(SHARES))
def test_a_long_text_takes_no_long_time(share: int) -> None:
    """Whatever the text: a long one costs so many plain scans at most, as it is used in the house."""
    allowed = RATIO * plain_scan()
    for expression in expressions()[share::SHARES]:
        found = slowest(expression, allowed)
        assert found is None or slowest(expression, allowed) is None, (expression, found)


@pytest.mark.timed
@pytest.mark.parametrize(
    ("text", "method"),
    [
        (r"\b[\w-]*(?:token|key)=", "sub"),
        (r"[0-9]+\.?[0-9]*", "fullmatch"),
        (r"(a+)+$", "match"),
        (r"\s+\Z", "search"),
    ],
)
def test_a_careless_expression_is_seen(text: str, method: str) -> None:
    """The check itself finds what it is for."""
    assert slowest(Expression("careless", re.compile(text), (method,)), RATIO * plain_scan()) is not None


def test_every_python_reads_them_alike() -> None:
    """The distributions' Python 3.11.2 finds what the newest one finds."""
    assert {str(one): found for one in expressions() if (found := misread(one.compiled))} == {}


@pytest.mark.parametrize(
    "text",
    [
        r"(?:ab?c)*+",
        r"(?:[0-9]++(?:ms|s))++",
        r"(?:[a-z]|%(?!2f))*+",
        r"(?:a|(?:--|#)b*+c)*+",
        r"(?:(a)|b)*+",
        r"(?:(a))?+",
        r'(?>(?:[^"]++|"")*)',
    ],
)
def test_an_expression_that_some_python_reads_otherwise_is_seen(text: str) -> None:
    """The check itself finds the forms that are for it."""
    assert misread(re.compile(text))


@pytest.mark.parametrize(
    "text",
    [
        r"[a-z]++",
        r'(?:[^"\\]++|\\.)*+',
        r"(?:\\.[^x]*+)*+",
        r"(?:ab?c|(?!))*+",
        r"(?:a|(?:--|#)b*+c|(?!))*+",
        r"(?>(a)b|)",
    ],
)
def test_a_form_that_is_read_alike_is_allowed(text: str) -> None:
    """What gives nothing back and is right stays, for it is what makes a search linear."""
    assert not misread(re.compile(text))
