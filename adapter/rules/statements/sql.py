"""The parts of the text of an SQL statement, dialect by dialect. Pure.

They are code, literals, quoted names and comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from adapter.rules.statements.templates import HOLE, StatementRefused

SqlDialect = Literal["sqlite", "postgres", "mysql"]

_NOT_IN_A_WORD = r"(?<![\w$\x80-\U0010ffff])"
"""Databases take every character beyond ASCII for a letter; so is a placeholder one, which may become a word."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """``opening`` matches whatever ends code. ``foreign`` is the database's own kind of parameter in code, which
    would be counted with ours.
    """

    name: SqlDialect
    opening: re.Pattern[str]
    literals: str
    line_end: str
    escapes: bool = False
    nested_comments: bool = False
    foreign: re.Pattern[str] | None = None

    def mark(self, number: int) -> str:
        """The text that stands for the statement's bind of this number; the first number is 1."""
        return {"sqlite": "?", "postgres": f"${number}", "mysql": "%s"}[self.name]


DIALECTS: Final[Mapping[SqlDialect, Dialect]] = {
    "sqlite": Dialect(
        "sqlite",
        opening=re.compile(r"--|/\*|['\"`\[]"),
        literals="'",
        line_end="\n",
        foreign=re.compile(rf"[?@:#]|{_NOT_IN_A_WORD}\$"),
    ),
    "postgres": Dialect(
        "postgres",
        opening=re.compile(rf"--|/\*|{_NOT_IN_A_WORD}[eE]'|{_NOT_IN_A_WORD}\$(?:[^\W\d]\w*)?\$|['\"]"),
        literals="'$eE",
        line_end="\r\n",
        nested_comments=True,
        foreign=re.compile(rf"{_NOT_IN_A_WORD}\$[0-9]"),
    ),
    "mysql": Dialect(
        "mysql",
        opening=re.compile(r"--(?=[\x00-\x20]|\Z)|#|/\*|['\"`]"),
        literals="'\"",
        line_end="\n",
        escapes=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: ``start`` and ``end`` say where, ``body_start`` and ``body_end`` what is between its
    quotes. ``quote`` is the opening one in full.
    """

    kind: Literal["code", "literal", "name", "comment"]
    start: int
    end: int
    body_start: int
    body_end: int
    quote: str = ""


def tokens(text: str, dialect: Dialect) -> Iterator[Token]:
    """The whole text, piece by piece. Raises StatementRefused for a quote or comment without an end, and for
    comments that MySQL executes.
    """
    at = 0
    while (found := dialect.opening.search(text, at)) is not None:
        if found.start() > at:
            yield Token("code", at, found.start(), at, found.start())
        token = _comment(text, found, dialect) or _quoted(text, found, dialect)
        yield token
        at = token.end
    if at < len(text):
        yield Token("code", at, len(text), at, len(text))


def _comment(text: str, found: re.Match[str], dialect: Dialect) -> Token | None:
    start, body = found.span()
    if found[0] == "/*":
        if dialect.name == "mysql" and text.startswith(("!", "M!"), body):
            raise StatementRefused("the statement contains a comment that is executed (/*! … */)")
        end = _comment_end(text, body, nested=dialect.nested_comments)
        return Token("comment", start, end, body, end - 2)
    if found[0] in ("--", "#"):
        line = re.compile(f"[^{dialect.line_end}]*").match(text, body)
        end = body if line is None else line.end()
        return Token("comment", start, end, body, end)
    return None


def _comment_end(text: str, at: int, *, nested: bool) -> int:
    depth = 1
    for edge in re.compile(r"/\*|\*/" if nested else r"\*/").finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise StatementRefused("the statement contains a comment without an end")


_CLOSING: Final = {"[": "]"}
_SELF_CLOSING = "'\"`"


def _quoted(text: str, found: re.Match[str], dialect: Dialect) -> Token:
    start, body = found.span()
    quote = found[0]
    last = quote[-1]
    closing = quote if last == "$" else _CLOSING.get(last, last)
    escapes = quote in ("e'", "E'") or (dialect.escapes and last != "`")
    end = _quote_end(text, body, closing, escapes=escapes)
    kind: Literal["literal", "name"] = "literal" if quote[0] in dialect.literals else "name"
    return Token(kind, start, end, body, end - len(closing), quote)


def _quote_end(text: str, at: int, closing: str, *, escapes: bool) -> int:
    while (found := text.find(closing, at)) >= 0:
        end = found + len(closing)
        if escapes and (len(text[at:found]) - len(text[at:found].rstrip("\\"))) % 2:
            # Whether a backslash escapes a quote is a setting of MySQL's server, and one there reads code where
            # the other reads a literal.
            raise StatementRefused("write a quote in a literal twice instead of behind a backslash")
        if closing in _SELF_CLOSING and text.startswith(closing, end):
            at = end + 1
            continue
        return end
    raise StatementRefused(f"the statement contains a {closing} without an end")


# --- what a literal says --------------------------------------------------------------------------------------

_MYSQL_ESCAPES: Final = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": r"\%",
    "_": r"\_",
}


def literal_text(text: str, token: Token, dialect: Dialect) -> str:
    """The text that a literal stands for. Raises StatementRefused for PostgreSQL's escape literals, and for a
    backslash in front of a placeholder.
    """
    body = text[token.body_start : token.body_end]
    if token.quote.startswith("$"):
        return body
    if token.quote in ("e'", "E'"):
        raise StatementRefused("a placeholder is in an escape literal (E'…'): write it without the E")
    body = body.replace(token.quote * 2, token.quote)
    if not dialect.escapes:
        return body
    if re.search(rf"(?<!\\)(?:\\\\)*\\[{HOLE}]", body):
        raise StatementRefused("a backslash is in front of a placeholder")
    return re.sub(r"\\(.)", lambda found: _MYSQL_ESCAPES.get(found[1], found[1]), body, flags=re.DOTALL)


# --- what a statement does ------------------------------------------------------------------------------------

_READING = frozenset(("select", "values", "table", "with", "show", "describe", "desc", "explain"))
_WRITE = "insert update delete merge replace into call do set create drop alter truncate grant revoke lock"
_WRITING = frozenset(_WRITE.split())
_ALSO_FUNCTIONS = frozenset(("replace", "insert", "truncate"))
_WORD = re.compile(r"([^\W\d]\w*)(?=(\s*\())?")


def reads(code: str) -> bool:
    """Tell whether a statement only reads, by the words of its code.

    What its functions do is not seen. Where nobody can tell, the answer is no.
    """
    first = _WORD.match(code.lstrip(" \t\r\n\f("))
    if first is None or first[1].lower() not in _READING:
        return False
    words = {
        found[1].lower()
        for found in _WORD.finditer(code)
        if not (found[2] and found[1].lower() in _ALSO_FUNCTIONS)
    }
    return not words & _WRITING
