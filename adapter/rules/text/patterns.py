"""Tell whether a text fits a pattern of somebody's schema. Pure.

Both may come from strangers. A pattern that the engine cannot express is not judged here: the tool itself decides
what it takes.
"""

from __future__ import annotations

from functools import lru_cache

from adapter.rules.text.ecma import as_re2
from adapter.rules.text.expressions import Expression, ExpressionInvalid

KEPT = 64
"""Patterns that stay compiled, each in SMALL bytes at most."""

KEPT_LARGE = 4

SMALL = 1 << 19
LARGE = 1 << 21
"""Bytes of a pattern; compiling a large one takes some hundredths of a second, which not everybody may spend."""


def pattern_of(source: str, *, large: bool) -> Expression:
    """The pattern, compiled; one that takes more than SMALL bytes only where ``large`` says so. Raises
    ExpressionInvalid, and TooLarge for one that is.
    """
    made = _small(source)
    if isinstance(made, Expression):
        return made
    if not _is_too_large(made):
        raise ExpressionInvalid(made)
    if not large:
        raise PatternTooLarge
    made = _large(source)
    if isinstance(made, str):
        raise ExpressionInvalid(made)
    return made


class PatternTooLarge(Exception):
    """A pattern takes more than SMALL bytes."""


def why_not(source: str) -> str | None:
    """The reason why the engine cannot express a pattern; None for a pattern that is judged."""
    try:
        pattern_of(source, large=True)
    except ExpressionInvalid as invalid:
        return str(invalid)
    return None


@lru_cache(KEPT)
def _small(source: str) -> Expression | str:
    return _made(source, SMALL)


@lru_cache(KEPT_LARGE)
def _large(source: str) -> Expression | str:
    return _made(source, LARGE)


def _made(source: str, memory: int) -> Expression | str:
    try:
        return Expression(as_re2(source), memory=memory)
    except ExpressionInvalid as invalid:
        return str(invalid)


def _is_too_large(why: str) -> bool:
    return "too large" in why
