"""Regular expressions and globs that somebody else wrote: of settings, schemas and scripts. Pure.

They run on RE2, whose time is linear in the text whatever the expression says; what it could only do by backtracking,
look-around and back-references, it refuses. Length, memory and so also the time of compiling are bounded here.

A glob is a pattern of dotted names: ``*`` is one segment, ``**`` any number of them, ``get-*`` a segment that begins
so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, cast

LONGEST = 4_096
"""Characters of an expression."""

MEMORY = 1 << 20
"""Bytes that a compiled expression may take, together with what it remembers of the texts it has seen."""


class ExpressionInvalid(ValueError):
    """A text that this engine cannot compile; ``str`` is the reason in a few words."""


class _Match(Protocol):
    def group(self, number: int) -> bytes | None: ...


class _Program(Protocol):
    """The part of a compiled expression of ``re2`` that is used here; the library has no types of its own."""

    programsize: int
    groups: int

    def fullmatch(self, text: bytes) -> _Match | None: ...

    def finditer(self, text: bytes) -> Iterator[_Match]: ...


class Expression:
    """An expression in RE2's syntax, compiled. ``memory`` is in bytes. Raises ExpressionInvalid.

    ``size`` is the number of its instructions: matching takes at most as many steps for each byte of a text.
    """

    __slots__ = ("_program", "size", "source")

    def __init__(self, source: str, *, ignore_case: bool = False, memory: int = MEMORY) -> None:
        self.source = source
        self._program = _compiled(source, ignore_case, memory)
        self.size = self._program.programsize

    def __repr__(self) -> str:
        return f"<Expression {self.source!r}>"

    def is_all_of(self, text: str) -> bool:
        """Tell whether the whole text matches."""
        return self._program.fullmatch(_bytes(text)) is not None

    def claims(self, text: str) -> Iterator[str]:
        """Of each match, in order, the first group, or the whole where there is none; a group that is not in the match
        is empty.
        """
        number = 1 if self._program.groups else 0
        for found in self._program.finditer(_bytes(text)):
            yield (found.group(number) or b"").decode("utf-8", "surrogatepass")


def _compiled(source: str, ignore_case: bool, memory: int) -> _Program:
    if len(source) > LONGEST:
        raise ExpressionInvalid(f"it is longer than {LONGEST} characters")
    # Late: with the library of C++ behind it the engine takes 2.6 MiB, and many settings hold no expression. Those
    # that do load it while they are checked, before anything is served.
    import re2

    options: Any = re2.Options()
    options.max_mem = memory
    options.case_sensitive = not ignore_case
    # Else the engine itself writes to standard error.
    options.log_errors = False
    try:
        # Bytes, because texts of strangers may hold lone surrogates.
        return cast(_Program, re2.compile(_bytes(source), options))
    except re2.error as error:
        raise ExpressionInvalid(_why(error)) from None
    finally:
        # The library keeps what it compiled, without looking at how much that takes.
        re2.purge()


def _why(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return text if len(text) <= 100 else text[:99] + "…"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_LONGEST_GLOB = 256


class GlobInvalid(ValueError):
    """A text that is no pattern."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern for whole names."""

    pattern: str
    _expression: Expression = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        segments = self.pattern.split(".")
        if not all(segments) or len(self.pattern) > _LONGEST_GLOB:
            raise GlobInvalid(
                f"A pattern must be names with dots between them, with at most {_LONGEST_GLOB} characters."
            )
        if any("**" in segment and segment != "**" for segment in segments):
            raise GlobInvalid(f"In a pattern, ** must be alone between dots; not {self.pattern!r}.")
        object.__setattr__(self, "_expression", _expression_of(self.pattern))

    def __str__(self) -> str:
        return self.pattern

    def matches(self, name: str) -> bool:
        """Tell whether the pattern matches this name."""
        return self._expression.is_all_of(f"{name}.")

    def covers(self, other: Glob) -> bool:
        """Tell whether this pattern surely matches every name that ``other`` matches."""
        # Its stars are characters of a segment here, and its ** is an empty segment, which only a ** matches.
        return self.matches(other.pattern.replace("**", ""))


@lru_cache(maxsize=256)
def _expression_of(pattern: str) -> Expression:
    """The expression for names with a dot at their end."""
    return Expression("".join(map(_part_of, pattern.split("."))))


def _part_of(segment: str) -> str:
    if segment == "**":
        return r"(?:[^.]*\.)*"
    inner = "[^.]+" if segment == "*" else re.escape(segment).replace(r"\*", "[^.]*")
    return inner + r"\."
