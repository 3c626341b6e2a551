"""Placeholders in a statement: ``{{ inputs.x }}``, ``{{ inputs.x | ident }}`` and ``{{ env.X }}``. Pure.

A template is read once, when it is compiled. What replaces a placeholder is never read again, so a value that
looks like a placeholder is a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from adapter.rules.calls.inputs import Input, Scalar, Value

Environment = Callable[[str], str | None]

_PLACEHOLDER = re.compile(r"\{\{\s*(inputs|env)\.([\w-]+)\s*(\|\s*ident\s*)?\}\}")
_LIKE_ONE = re.compile(r"\{\{\s*(?:(?:inputs|env)\b|[A-Za-z_][\w.|\s-]*\}\})")
"""What was meant as a placeholder: not ``{{1,2},{3,4}}``, which PostgreSQL reads as an array."""

_FIRST_HOLE = 0xF0000
HOLE = "\U000f0000-\U000ffffd"
"""The characters that stand for placeholders, for use in a character class: letters of no script, which no
grammar knows.
"""

_HOLES = re.compile(f"([{HOLE}])")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


class StatementRefused(ValueError):
    """A statement that cannot be compiled; the sentence is for the one who wrote it."""


class EnvironmentFailed(Exception):
    """An environment variable of a statement is missing, or its value cannot stand in its place."""

    def __init__(self, name: str, what: str = "not found (required at server startup)") -> None:
        super().__init__(
            f"failed to substitute environment variables in statement: environment variable '{name}' {what}"
        )


class SubstitutionFailed(Exception):
    """An input of a statement has no value, or a value that cannot stand in its place."""

    def __init__(self, name: str, what: str = "not found for substitution") -> None:
        super().__init__(f"template substitution failed: input '{name}' {what}")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder. ``declared`` is given for inputs; ``ident`` asks for the value itself, which is then one of an
    enum.
    """

    space: Literal["inputs", "env"]
    name: str
    source: str
    ident: bool = False
    declared: Input | None = field(default=None, repr=False)


Part = str | Placeholder


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. ``shape`` is the text with one character in the place of each placeholder, for a lexer."""

    shape: str
    placeholders: tuple[Placeholder, ...]

    def parts(self, shape: str) -> tuple[Part, ...]:
        """A piece of the shape, or a text made from one, as texts and placeholders; no text is empty."""
        return tuple(
            self.placeholders[ord(piece) - _FIRST_HOLE] if _HOLES.fullmatch(piece) else piece
            for piece in _HOLES.split(shape)
            if piece
        )

    def source(self, shape: str) -> str:
        """A piece of the shape as it was written."""
        return "".join(part if isinstance(part, str) else part.source for part in self.parts(shape))

    @property
    def environment(self) -> frozenset[str]:
        """The names of the environment variables."""
        return frozenset(one.name for one in self.placeholders if one.space == "env")


def has_hole(shape: str) -> bool:
    return _HOLES.search(shape) is not None


def parse(text: str, inputs: Mapping[str, Input]) -> Template:
    """Raises StatementRefused for a placeholder that is none, an input that is not declared, and a name that is
    to be taken from an input without an enum of names.
    """
    if has_hole(text):
        raise StatementRefused("the statement contains a private-use character")
    pieces: list[str] = []
    placeholders: list[Placeholder] = []
    at = 0
    for found in _LIKE_ONE.finditer(text):
        exact = _PLACEHOLDER.match(text, found.start())
        if exact is None:
            near = text[found.start() : found.start() + 40]
            raise StatementRefused(
                f"'{near}' is not a placeholder: write {{{{ inputs.x }}}} or {{{{ env.X }}}}"
            )
        pieces += (text[at : exact.start()], chr(_FIRST_HOLE + len(placeholders)))
        placeholders.append(_placeholder(exact, inputs))
        at = exact.end()
    return Template("".join((*pieces, text[at:])), tuple(placeholders))


def _placeholder(found: re.Match[str], inputs: Mapping[str, Input]) -> Placeholder:
    space, name, ident = found.groups()
    if space == "env":
        if ident:
            raise StatementRefused(f"'{found[0]}': only an input can be used as a name")
        return Placeholder("env", name, found[0])
    declared = inputs.get(name)
    if declared is None:
        raise StatementRefused(str(SubstitutionFailed(name)))
    if ident and not _names_only(declared):
        raise StatementRefused(f"'{found[0]}': input '{name}' needs an enum whose members are plain names")
    return Placeholder("inputs", name, found[0], bool(ident), declared)


def _names_only(declared: Input) -> bool:
    return bool(declared.enum) and all(
        isinstance(member, str) and _PLAIN_NAME.fullmatch(member) for member in declared.enum or ()
    )


# --- what replaces them ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with the values of one call; ``text`` and ``values`` together tell it from every other.

    SQL: ``values`` belong to the placeholders of ``text``; where there are any, a mysql text has its percent
    signs doubled. redis: ``argv`` is the whole command. mongodb: ``document`` is ``{"database", "command"}``,
    the database missing where the template has none.
    """

    text: str
    values: tuple[Value, ...]
    argv: tuple[str, ...] = ()
    document: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the values of one call."""

    inputs: Mapping[str, object]
    env: Environment

    def value(self, placeholder: Placeholder) -> Scalar:
        """Raises EnvironmentFailed and SubstitutionFailed; lists, objects and null are no value."""
        value = self.given(placeholder)
        if value is None:
            raise SubstitutionFailed(placeholder.name)
        if isinstance(value, dict | list):
            raise SubstitutionFailed(placeholder.name, "is not a single value")
        return value

    def given(self, placeholder: Placeholder) -> Value:
        """The value, also an array or an object of an input that is one; None for an optional input that is left out.

        Raises EnvironmentFailed and SubstitutionFailed.
        """
        name = placeholder.name
        if placeholder.space == "env":
            text = self.env(name)
            if text is None:
                raise EnvironmentFailed(name)
            return text
        value, declared = self.inputs.get(name), placeholder.declared
        if value is None:
            if declared is None or declared.required or placeholder.ident:
                raise SubstitutionFailed(name)
            return None
        # By exact type: what a subclass does when a driver asks it for its text is its own affair.
        if type(value) is str or type(value) is int or type(value) is float or type(value) is bool:
            if placeholder.ident and value not in ((declared and declared.enum) or ()):
                raise SubstitutionFailed(name, "is not one of the allowed names")
            return value
        if (type(value) is dict or type(value) is list) and declared is not None and declared.structured:
            return value
        raise SubstitutionFailed(name, "is not a single value")

    def text(self, parts: tuple[Part, ...]) -> str:
        """The parts with their values, as one text."""
        return "".join(part if isinstance(part, str) else spelled(self.value(part)) for part in parts)

    def whole_text(self, parts: tuple[Part, ...]) -> str | None:
        """The same; None where an optional input in it is left out, as a database has it of a text with NULL."""
        if any(self.given(part) is None for part in named(parts)):
            return None
        return self.text(parts)


def spelled(value: Scalar) -> str:
    """A value inside a longer text: true and false, and the shortest digits of a number, with an exponent from a
    million on (Go's ``'g'``, which statements of this kind were written for).
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    digits, exponent = _shortest(value)
    if -4 <= exponent < 6:
        return repr(value).removesuffix(".0")
    whole = digits[0] + ("." + digits[1:] if digits[1:] else "")
    return f"{'-' if value < 0 else ''}{whole}e{exponent:+03d}"


def _shortest(value: float) -> tuple[str, int]:
    """The significant digits that tell a number from its neighbours, and its decimal exponent."""
    precision = next(count for count in range(17) if float(f"{value:.{count}e}") == value)
    mantissa, _, exponent = f"{abs(value):.{precision}e}".partition("e")
    return mantissa.replace(".", ""), int(exponent)


def named(parts: tuple[Part, ...]) -> Iterator[Placeholder]:
    """The placeholders among the parts."""
    return (part for part in parts if isinstance(part, Placeholder))
