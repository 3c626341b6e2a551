"""Queries of Prometheus, as far as a test has to understand them: their metrics, and the labels that they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(
    r'(?P<text>"[^"]*")|(?P<duration>\[[^\]]*\]|\d+[smhd]\b)|(?P<number>\d+(?:\.\d+)?)'
    r"|(?P<name>[A-Za-z_:$][\w:$]*)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%<>=(){},])|(?P<space>\s+)"
)
WORDS = {"and", "or", "unless", "offset", "bool"}
LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
"""Words before a list of labels in parentheses."""


class Matcher(NamedTuple):
    """A condition of a selector; ``value`` without its quotes."""

    label: str
    sign: str
    value: str


class Selector(NamedTuple):
    """A metric of a query, as it is written there, with its conditions."""

    metric: str
    matchers: tuple[Matcher, ...]


class Needs(NamedTuple):
    """Everything that a query asks of the metrics: ``labels`` are those by which it sums up or joins."""

    selectors: tuple[Selector, ...]
    labels: frozenset[str]


def tokens(query: str) -> list[tuple[str, str]]:
    """The kinds and texts of a query's parts. Raises ValueError if it has anything else."""
    found, end = [], 0
    for match in TOKEN.finditer(query):
        if match.start() != end:
            break
        end = match.end()
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match.group()))
    if end != len(query):
        raise ValueError(f"not understood: {query[end:]!r}")
    return found


def needs(query: str) -> Needs:
    """Read a query."""
    parts = iter([*tokens(query), ("end", "")])
    selectors: list[Selector] = []
    labels: set[str] = set()
    kind, text = next(parts)
    while kind != "end":
        follows = next(parts)
        if kind == "name" and text in LISTS:
            assert follows[1] == "(", query
            labels |= set(_names(parts))
            follows = next(parts)
        elif kind == "name" and text not in WORDS:
            if follows[1] == "{":
                selectors.append(Selector(text, tuple(_matchers(parts))))
                follows = next(parts)
            elif follows[1] != "(" and follows[1] not in LISTS:
                selectors.append(Selector(text, ()))
        kind, text = follows
    return Needs(tuple(selectors), frozenset(labels))


def _names(parts: Iterator[tuple[str, str]]) -> Iterator[str]:
    for kind, text in parts:
        if text == ")":
            return
        if kind == "name":
            yield text


def _matchers(parts: Iterator[tuple[str, str]]) -> Iterator[Matcher]:
    for _, text in parts:
        if text == "}":
            return
        if text != ",":
            sign, (_, value) = next(parts)[1], next(parts)
            yield Matcher(text, sign, value.strip('"'))
