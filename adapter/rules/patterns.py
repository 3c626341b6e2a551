"""Whether a text fits a pattern of somebody's schema, as far as that can be told in a moment. Pure.

Both may come from strangers, and a backtracking matcher can take years over thirty characters. So the work that a
pattern could make is estimated from its form, from above, and what would be too much is not tried.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

WORK = 21.0
"""Binary logarithm of the steps that may be taken over one text; a matcher takes some fifty million a second."""

_KIND = r"(?:\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDsSwW])"
_SEPARATOR = r"(?:\\\W|[-_/:,;@ ])"
_SEPARATED = re.compile(
    rf"\((?:\?:)?(?:(?P<before>{_SEPARATOR})(?P<rest>{_KIND})[*+]|(?P<first>{_KIND})[*+](?P<after>{_SEPARATOR}))\)[*+]"
)
_ATOM = re.compile(rf"\\.|{_KIND}|(?P<group>\((?:\?(?:P?<\w+>|<?[=!]|[:>]))?)", re.DOTALL)
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(?P<least>[0-9]+)(?P<range>,(?P<most>[0-9]*))?\})[?+]?")


@dataclass(slots=True)
class _Ways:
    """In how many ways a text of n characters can be cut into what a pattern is made of, at most.

    They are n to the power of ``repeats``, times two to the power of ``choices``, times two to that of ``each`` for
    every character.
    """

    repeats: float = 0
    choices: float = 0
    each: float = 0

    def add(self, other: _Ways) -> None:
        self.repeats += other.repeats
        self.choices += other.choices
        self.each += other.each

    def times(self, most: float) -> _Ways:
        return _Ways(*(ways * most if ways else 0 for ways in (self.repeats, self.choices, self.each)))

    def endlessly(self) -> _Ways:
        """Repeated any number of times: every character may begin a repetition, with all its choices."""
        # A repetition within a repetition of repetitions has no bound that would be of use.
        each = math.inf if self.each else self.repeats + self.choices
        return _Ways(self.repeats + 1, self.choices, each)

    def affordable(self, length: int) -> bool:
        return self.repeats * math.log2(length + 1) + self.choices + self.each * length <= WORK


def fits(pattern: str, text: str) -> bool | None:
    """Whether the pattern occurs in the text, as JSON Schema means it.

    None where that is not known: the pattern is one that Python cannot read, or it could take too long.
    """
    read = _read(pattern)
    if read is None:
        return None
    expression, ways = read
    return expression.search(text) is not None if ways.affordable(len(text)) else None


@lru_cache(maxsize=512)
def _read(pattern: str) -> tuple[re.Pattern[str], _Ways] | None:
    try:
        with warnings.catch_warnings():
            # What Python will once read differently is no affair of whoever runs the adapter.
            warnings.simplefilter("ignore")
            return re.compile(pattern), _ways(pattern)
    except (re.error, RecursionError, OverflowError):
        return None


def _ways(pattern: str) -> _Ways:
    simple = _ATOM.sub(lambda atom: "(" if atom["group"] else ".", _SEPARATED.sub(_joined, pattern))
    # The groups that are open, outermost first; without an anchor the whole may begin anywhere.
    groups = [_Ways(repeats=0 if simple.startswith("^") else 1)]
    position = 0
    while position < len(simple):
        character, position = simple[position], position + 1
        if character == "(":
            groups.append(_Ways())
        elif character == "|":
            groups[-1].choices += 1
        else:
            part = groups.pop() if character == ")" and len(groups) > 1 else _Ways()
            if quantifier := _QUANTIFIER.match(simple, position):
                position = quantifier.end()
                part = _quantified(part, quantifier)
            groups[-1].add(part)
    return groups[0]


def _quantified(part: _Ways, quantifier: re.Match[str]) -> _Ways:
    if quantifier[0][0] in "*+" or (quantifier["range"] and not quantifier["most"]):
        return part.endlessly()
    least = int(quantifier["least"] or 0)
    most = int(quantifier["most"] or quantifier["least"] or 1)
    repeated = part.times(most)
    repeated.choices += math.log2(max(most - least, 0) + 1)
    return repeated


def _joined(found: re.Match[str]) -> str:
    """``(-[a-z]+)*`` is as cheap as ``[-a-z]*`` where no ``-`` is in the class: there is one way to cut a text."""
    separator = found["before"] or found["after"]
    kind = found["rest"] or found["first"]
    return found[0] if re.fullmatch(kind, separator[-1]) else ".*"
