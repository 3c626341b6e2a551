"""The language of ``when``: comparisons of dotted names and literals, ``and``, ``or``, ``not``, ``in``. Pure.

Compiled once; nothing is evaluated but what is written here. On data a condition never fails: a name that leads
nowhere is null, and what cannot be compared is not so.

    status == 'overdue' and not (client.tier in ['gold', 'silver'] or amount < 10)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from adapter.rules.text.json_values import is_number

_LONGEST = 1000
_DEEPEST = 32

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number> -?(?:\d+\.\d+|\d+)(?:[eE][+-]?\d+)? (?![\w.]) )
    | (?P<text> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<name> [^\W\d]\w* (?:\.\w+)* )
    | (?P<sign> == | != | <= | >= | [<>()\[\],] )
    | (?P<end> \Z )
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_RESERVED = frozenset(("and", "or", "not", "in"))

Value = Callable[[Any], Any]
"""Data, to a value."""


class ConditionInvalid(ValueError):
    """A text that is no condition; its message says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition: called with data, says whether it holds."""

    text: str
    value: Value

    def __call__(self, data: Any) -> bool:
        try:
            return bool(self.value(data))
        except RecursionError:
            # Two values nested deeper than the stack: nobody says that they are equal.
            return False


def compile_condition(text: str) -> Condition:
    """Raises ConditionInvalid."""
    if len(text) > _LONGEST:
        raise ConditionInvalid(f"A condition may have at most {_LONGEST} characters.")
    parser = _Parser(text)
    value = parser.either()
    parser.end()
    return Condition(text, value)


# --- what holds -----------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Return the equality of JSON: 1 is 1.0, but neither true nor "1"."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """Return a comparison of two numbers or two texts; other values have no order."""

    def holds(one: Any, other: Any) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            return bool(compare(one, other))
        return is_number(one) and is_number(other) and bool(compare(one, other))

    return holds


def _within(one: Any, other: Any) -> bool:
    if isinstance(other, str):
        return isinstance(one, str) and one in other
    if isinstance(other, Mapping):
        return isinstance(one, str) and one in other
    return isinstance(other, list) and any(same(one, item) for item in other)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": same,
    "!=": lambda one, other: not same(one, other),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
}


def _name(dotted: str) -> Value:
    parts = dotted.split(".")

    def look_up(data: Any) -> Any:
        for part in parts:
            if isinstance(data, Mapping):
                data = data.get(part)
            elif isinstance(data, list) and part.isdecimal() and len(part) < 10 and int(part) < len(data):
                data = data[int(part)]
            else:
                return None
        return data

    return look_up


# --- what is written ------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent, from the loosest to the tightest: or, and, not, a comparison, an operand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._at = 0
        self._token = self._next()

    def either(self) -> Value:
        values = [self._both()]
        while self._take("or"):
            values.append(self._both())
        return values[0] if len(values) == 1 else lambda data: any(value(data) for value in values)

    def end(self) -> None:
        if self._token.kind != "end":
            self._refuse("an operator or the end")

    def _both(self) -> Value:
        values = [self._negated()]
        while self._take("and"):
            values.append(self._negated())
        return values[0] if len(values) == 1 else lambda data: all(value(data) for value in values)

    def _negated(self) -> Value:
        if not self._take("not"):
            return self._comparison()
        self._descend()
        value = self._negated()
        self._depth -= 1
        return lambda data: not value(data)

    def _comparison(self) -> Value:
        left = self._operand()
        compare = self._operator()
        if compare is None:
            return left
        right = self._operand()
        return lambda data: compare(left(data), right(data))

    def _operator(self) -> Callable[[Any, Any], bool] | None:
        if self._token.kind == "sign" and self._token.text in _COMPARISONS:
            compare = _COMPARISONS[self._token.text]
            self._token = self._next()
            return compare
        if self._take("in"):
            return _within
        if self._take("not"):
            if not self._take("in"):
                self._refuse("in")
            return lambda one, other: not _within(one, other)
        return None

    def _operand(self) -> Value:
        if self._take("("):
            self._descend()
            value = self.either()
            if not self._take(")"):
                self._refuse(")")
            self._depth -= 1
            return value
        if self._token.kind == "name" and self._token.text not in _RESERVED | _WORDS.keys():
            value = _name(self._token.text)
            self._token = self._next()
            return value
        literal = self._literal()
        return lambda _: literal

    def _literal(self) -> Any:
        if self._take("["):
            return self._list()
        token = self._token
        if token.kind == "text":
            value: Any = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[0]), token.text[1:-1])
        elif token.kind == "number":
            value = float(token.text) if set(token.text) & set(".eE") else int(token.text)
        elif token.kind == "name" and token.text in _WORDS:
            value = _WORDS[token.text]
        else:
            self._refuse("a name or a literal")
        self._token = self._next()
        return value

    def _list(self) -> list[Any]:
        self._descend()
        items: list[Any] = []
        while not self._take("]"):
            if items and not self._take(","):
                self._refuse(", or ]")
            items.append(self._literal())
        self._depth -= 1
        return items

    def _take(self, text: str) -> bool:
        if self._token.kind not in ("name", "sign") or self._token.text != text:
            return False
        self._token = self._next()
        return True

    def _next(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            raise ConditionInvalid(f"The condition has invalid text at character {self._at + 1}.")
        self._at = found.end()
        return _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConditionInvalid(f"A condition may be nested at most {_DEEPEST} levels deep.")

    def _refuse(self, expected: str) -> NoReturn:
        found = self._token.text or "its end"
        raise ConditionInvalid(f"At character {self._token.at + 1} stands {found}, not {expected}.")
