"""Patterns of JSON Schemas, in the syntax of ECMA-262, translated for RE2 and compiled. Pure.

Pattern and text may come from strangers. A pattern that RE2 cannot express is not judged here: the tool itself
decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from adapter.rules.text.expressions import Expression, ExpressionInvalid

_SPACES: Final = r"\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_NO_SPACES: Final = (
    r"\x{0}-\x{8}\x{e}-\x{1f}!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
)
_ANY: Final = r"\x{0}-\x{10ffff}"
_DOT: Final = r"[^\n\r\x{2028}\x{2029}]"
_AS_THEY_ARE: Final = frozenset("dDwWtnvfr")
_PROPERTY_KINDS: Final = frozenset(("General_Category", "gc", "Script", "sc"))
_CATEGORIES: Final = {
    name: short
    for short, names in {
        "C": "Other",
        "Cc": "Control cntrl",
        "Cf": "Format",
        "Co": "Private_Use",
        "L": "Letter",
        "Ll": "Lowercase_Letter",
        "Lm": "Modifier_Letter",
        "Lo": "Other_Letter",
        "Lt": "Titlecase_Letter",
        "Lu": "Uppercase_Letter",
        "M": "Mark Combining_Mark",
        "Mc": "Spacing_Mark",
        "Me": "Enclosing_Mark",
        "Mn": "Nonspacing_Mark",
        "N": "Number",
        "Nd": "Decimal_Number digit",
        "Nl": "Letter_Number",
        "No": "Other_Number",
        "P": "Punctuation punct",
        "Pc": "Connector_Punctuation",
        "Pd": "Dash_Punctuation",
        "Pe": "Close_Punctuation",
        "Pf": "Final_Punctuation",
        "Pi": "Initial_Punctuation",
        "Po": "Other_Punctuation",
        "Ps": "Open_Punctuation",
        "S": "Symbol",
        "Sc": "Currency_Symbol",
        "Sk": "Modifier_Symbol",
        "Sm": "Math_Symbol",
        "So": "Other_Symbol",
        "Z": "Separator",
        "Zl": "Line_Separator",
        "Zp": "Paragraph_Separator",
        "Zs": "Space_Separator",
    }.items()
    for name in names.split()
}
_LOOK_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")


def as_re2(pattern: str) -> str:
    """Return the pattern in RE2's syntax; an invalid pattern may stay invalid.

    Raises ExpressionInvalid for what RE2 cannot express.
    """
    return _Translation(pattern).written()


class _Translation:
    """One walk over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._pieces: list[str] = []

    def written(self) -> str:
        while self._at < len(self._pattern):
            self._pieces.append(self._next())
        return "".join(self._pieces)

    def _next(self) -> str:
        character = self._take()
        match character:
            case "\\":
                return self._escape(within=False)
            case ".":
                return _DOT
            case "[":
                return self._class()
            case "(":
                self._check_group()
        return character

    def _take(self, count: int = 1) -> str:
        taken = self._pattern[self._at : self._at + count]
        if len(taken) < count:
            raise ExpressionInvalid("it ends within an escape or a class")
        self._at += count
        return taken

    def _check_group(self) -> None:
        if self._pattern.startswith(_LOOK_AROUND, self._at - 1):
            raise ExpressionInvalid("look-around")
        if self._pattern.startswith("?", self._at):
            flags = self._pattern[self._at + 1 : self._at + 8].partition(":")[0].partition(")")[0]
            if "s" in flags and flags.replace("-", "").isalpha():
                # A dot is written as what it is without that flag.
                raise ExpressionInvalid("the flag s")

    # --- classes ----------------------------------------------------------------------------------------------

    def _class(self) -> str:
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        items: list[str] = []
        while (character := self._take()) != "]":
            if character == "\\":
                items.append(self._escape(within=True))
            else:
                # In RE2 a bracket may begin the name of a class.
                items.append("\\[" if character == "[" else "\\^" if character == "^" else character)
        if not items:
            return f"[{_ANY}]" if negated else f"[^{_ANY}]"
        return f"[{'^' if negated else ''}{''.join(items)}]"

    # --- escapes ----------------------------------------------------------------------------------------------

    def _escape(self, *, within: bool) -> str:
        letter = self._take()
        if letter in _AS_THEY_ARE:
            return "\\" + letter
        if letter in "sS":
            items = _SPACES if letter == "s" else _NO_SPACES
            return self._in_no_range(items) if within else f"[{items}]"
        if letter in "bB":
            return self._boundary(letter, within=within)
        if letter in _ESCAPES:
            return _ESCAPES[letter](self)
        if letter.isdigit() or letter == "k":
            raise ExpressionInvalid("back-references")
        if letter.isalpha():
            raise ExpressionInvalid(f"\\{letter}")
        return "\\" + letter if letter.isascii() else letter

    def _in_no_range(self, items: str) -> str:
        """Several members of a class, which would otherwise be taken for the end of a range."""
        before, behind = self._pattern[self._at - 4 : self._at - 2], self._pattern[self._at : self._at + 2]
        if (before.endswith("-") and before != "[-") or (behind.startswith("-") and behind != "-]"):
            raise ExpressionInvalid("\\s in a range")
        return items

    def _boundary(self, letter: str, *, within: bool) -> str:
        if not within:
            return "\\" + letter
        if letter == "B":
            raise ExpressionInvalid("\\B in a class")
        return r"\x{8}"

    def _nul(self) -> str:
        if self._pattern[self._at : self._at + 1].isdigit():
            raise ExpressionInvalid("octal escapes")
        return r"\x{0}"

    def _control(self) -> str:
        letter = self._take()
        if not (letter.isascii() and letter.isalpha()):
            raise ExpressionInvalid("\\c")
        return _code_point(ord(letter) % 32)

    def _two_digits(self) -> str:
        return _code_point(_hexadecimal(self._take(2)))

    def _unicode(self) -> str:
        if self._pattern.startswith("{", self._at):
            end = self._pattern.find("}", self._at, self._at + 9)
            if end < 0:
                raise ExpressionInvalid("\\u")
            return _code_point(_hexadecimal(self._take(end + 1 - self._at)[1:-1]))
        first = _hexadecimal(self._take(4))
        if 0xD800 <= first < 0xDC00 and self._pattern.startswith("\\u", self._at):
            self._take(2)
            second = _hexadecimal(self._take(4))
            first = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
        return _code_point(first)

    def _property(self) -> str:
        return self._property_of("p")

    def _no_property(self) -> str:
        return self._property_of("P")

    def _property_of(self, letter: str) -> str:
        end = self._pattern.find("}", self._at, self._at + 64)
        if not self._pattern.startswith("{", self._at) or end < 0:
            raise ExpressionInvalid(f"\\{letter}")
        kind, equals, name = self._take(end + 1 - self._at)[1:-1].rpartition("=")
        if equals and kind not in _PROPERTY_KINDS:
            raise ExpressionInvalid(f"\\{letter}{{{kind}=}}")
        return f"\\{letter}{{{_CATEGORIES.get(name, name)}}}"


_ESCAPES: Final[dict[str, Callable[[_Translation], str]]] = {
    "0": _Translation._nul,
    "c": _Translation._control,
    "x": _Translation._two_digits,
    "u": _Translation._unicode,
    "p": _Translation._property,
    "P": _Translation._no_property,
}


def _hexadecimal(digits: str) -> int:
    try:
        # Else int() would take signs, spaces and underscores.
        return int(digits if digits.isascii() and digits.isalnum() else "?", 16)
    except ValueError:
        raise ExpressionInvalid("an escape of a character") from None


def _code_point(number: int) -> str:
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise ExpressionInvalid("a surrogate, or what is beyond Unicode")
    return f"\\x{{{number:x}}}"


KEPT = 64
"""Patterns that stay compiled, each in SMALL bytes at most."""

KEPT_LARGE = 4

SMALL = 1 << 19
LARGE = 1 << 21
"""Bytes of a pattern; compiling a large one takes some hundredths of a second, which not everybody may spend."""


def pattern_of(source: str, *, large: bool) -> Expression:
    """Return the compiled pattern; one of more than SMALL bytes only with ``large``. Raises ExpressionInvalid, and
    PatternTooLarge.
    """
    compiled = _small(source)
    if isinstance(compiled, Expression):
        return compiled
    if not _is_too_large(compiled):
        raise ExpressionInvalid(compiled)
    if not large:
        raise PatternTooLarge
    compiled = _large(source)
    if isinstance(compiled, str):
        raise ExpressionInvalid(compiled)
    return compiled


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
