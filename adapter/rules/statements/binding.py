"""An SQL template as a text with the driver's placeholders, and the values that are bound to them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from adapter.rules.calls.inputs import Scalar
from adapter.rules.statements.sql import Dialect, Token, literal_text, reads, tokens
from adapter.rules.statements.templates import (
    HOLE,
    Bound,
    EnvironmentFailed,
    Part,
    Placeholder,
    Sources,
    StatementRefused,
    SubstitutionFailed,
    Template,
    has_hole,
    named,
    spelled,
)
from adapter.rules.text.json_values import compact


@dataclass(frozen=True, slots=True)
class Bind:
    """One bound value. In code it is the input's value in its own type, and the JSON text of an array or object. In a
    literal it is the text of the literal with the values in it, joined here and not by the database. An optional
    input that is left out is NULL.
    """

    parts: tuple[Part, ...]
    is_text: bool

    def value(self, sources: Sources) -> Scalar | None:
        if self.is_text:
            return sources.whole_text(self.parts)
        (placeholder,) = named(self.parts)
        value = sources.given(placeholder)
        return compact(value) if isinstance(value, dict | list) else value


@dataclass(frozen=True, slots=True)
class Paste:
    """A value that becomes part of the text: a name out of an enum, an environment variable, or what textual
    substitution lets through.
    """

    placeholder: Placeholder
    in_quotes: bool

    def text(self, sources: Sources) -> str:
        """Raises EnvironmentFailed where the variable holds what would end its quotes or, in code, more than a name
        or a number, and SubstitutionFailed where an input's value is not of its type.
        """
        value = sources.given(self.placeholder)
        name = self.placeholder.name
        if value is None:
            return "NULL"
        if self.placeholder.space == "env":
            text = str(value)
            if self.in_quotes and not _QUOTABLE.fullmatch(text):
                raise EnvironmentFailed(name, "has a character that is not allowed inside quotes")
            if not self.in_quotes and not _WORDS_AND_DOTS.fullmatch(text):
                raise EnvironmentFailed(name, "must be a name or a number at this place")
            return text
        declared = self.placeholder.declared
        assert declared is not None, "inputs are declared, or parse refuses them"
        try:
            text = spelled(declared.accepted(value))
        except ValueError as reason:
            raise SubstitutionFailed(name, f"is refused: {reason}") from None
        # Behind a minus a second one would open a comment.
        return f" {text}" if text.startswith("-") and not self.in_quotes else text


_WORDS_AND_DOTS = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
_QUOTABLE = re.compile(r"[^'\"`\[\]\\$\0]*")


Piece = str | Bind | Paste


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """``text`` shows a placeholder where a value is pasted; without such, ``pastes``, it is what the driver gets."""

    pieces: tuple[Piece, ...]
    dialect: Dialect
    text: str
    reads: bool
    pastes: bool

    def bound(self, text: str, sources: Sources) -> Bound:
        """The text for the driver, and the values in the order of its placeholders."""
        values = tuple([piece.value(sources) for piece in self.pieces if type(piece) is Bind])
        if self.pastes:
            text = _rendered(self.pieces, self.dialect, lambda paste: paste.text(sources))
        return Bound(text, values)


def compile_sql(template: Template, dialect: Dialect, *, textual: bool) -> SqlStatement:
    """Raises StatementRefused where a placeholder stands in a place in which nothing can be bound."""
    shape = template.shape
    lexed = tuple(tokens(shape, dialect))
    if textual:
        _refuse_free_texts(template)
    code = _one_statement(shape, lexed)
    for found in (token for token in lexed if token.kind == "code"):
        _refuse_foreign(shape[found.start : found.end], dialect)
    pieces = tuple(piece for token in lexed for piece in _pieces(template, token, dialect, textual=textual))
    text = _rendered(pieces, dialect, lambda paste: paste.placeholder.source)
    pastes = any(isinstance(piece, Paste) for piece in pieces)
    return SqlStatement(pieces, dialect, text, reads(code), pastes)


def _rendered(pieces: tuple[Piece, ...], dialect: Dialect, pasted: Callable[[Paste], str]) -> str:
    # The drivers of MySQL fill in with Python's %, but only where there is something to fill in.
    doubled = dialect.name == "mysql" and any(isinstance(piece, Bind) for piece in pieces)
    written: list[str] = []
    number = 0
    for piece in pieces:
        if isinstance(piece, Bind):
            number += 1
            written.append(dialect.mark(number))
            continue
        text = piece if isinstance(piece, str) else pasted(piece)
        written.append(text.replace("%", "%%") if doubled else text)
    return "".join(written)


# --- a token's pieces -----------------------------------------------------------------------------------------


def _pieces(template: Template, token: Token, dialect: Dialect, *, textual: bool) -> Iterator[Piece]:
    shape = template.shape
    text = shape[token.start : token.end]
    parts = template.parts(text)
    if not has_hole(text):
        yield text
    elif token.kind == "comment":
        raise StatementRefused(f"a placeholder is in a comment: {template.source(text)}")
    elif token.kind == "literal" and not textual:
        _refuse_typed_literal(template, token, dialect)
        _refuse_joined(template, token.start, token.end)
        _refuse_structures(parts)
        yield Bind(template.parts(literal_text(shape, token, dialect)), is_text=True)
    elif token.kind == "code":
        at = token.start
        for part in parts:
            yield _in_code(template, part, at, dialect, textual=textual)
            at += len(part) if isinstance(part, str) else 1
    else:
        for part in parts:
            yield part if isinstance(part, str) else _in_quotes(part, token, textual=textual)


def _in_code(template: Template, part: Part, at: int, dialect: Dialect, *, textual: bool) -> Piece:
    if isinstance(part, str):
        return part
    if part.ident or part.space == "env" or textual:
        before, after = template.shape[:at], template.shape[at + 1 :]
        if before.endswith(("--", "$")) or after.startswith(("'", '"', "$")):
            raise StatementRefused(f"{part.source} is directly next to a quote or a comment")
        return Paste(part, in_quotes=False)
    _refuse_joined(template, at, at + 1)
    if part.declared is not None and part.declared.structured and _IN_LIST.search(template.shape[:at]):
        raise StatementRefused(f"{part.source} is bound as one JSON text: {_AS_ROWS[dialect.name]}")
    if re.search(r"\bby\s*\Z", template.shape[:at], re.IGNORECASE):
        raise StatementRefused(f"{part.source} is used as a name: {_AS_A_NAME}")
    return Bind((part,), is_text=False)


def _in_quotes(part: Placeholder, token: Token, *, textual: bool) -> Piece:
    if token.kind == "literal" or part.ident or part.space == "env" or textual:
        return Paste(part, in_quotes=True)
    raise StatementRefused(f"{part.source} is inside a quoted name: {_AS_A_NAME}")


# --- where nothing can be bound -------------------------------------------------------------------------------

_AS_A_NAME = "write {{ inputs.x | ident }} and give the input an enum"
_AS_ROWS: Final[Mapping[str, str]] = {
    "sqlite": "write IN (SELECT value FROM json_each({{ inputs.x }}))",
    "postgres": "write IN (SELECT jsonb_array_elements_text({{ inputs.x }}::jsonb))",
    "mysql": "write IN (SELECT v FROM JSON_TABLE({{ inputs.x }}, '$[*]' COLUMNS (v TEXT PATH '$')) AS t)",
}
_IN_LIST = re.compile(r"\bin\s*\(\s*\Z", re.IGNORECASE)
_JOINS = re.compile(rf"[\w$@?.&'\"`\x80-\U0010ffff{HOLE}]")
_TYPED = re.compile(r"(?<![\w.])(?:date|time|timestamp|timestamptz|timetz|interval)\s*\Z", re.IGNORECASE)
_TYPED_IN_MYSQL = re.compile(r"(?<![\w.])(?:date|time|timestamp)\s*\Z", re.IGNORECASE)
_PASTABLE = re.compile(r"[A-Za-z0-9_]+(?:(?:[ .,]+|-)[A-Za-z0-9_]+)*")


def _refuse_joined(template: Template, start: int, end: int) -> None:
    """Refuse a placeholder that touches another word: ``?`` and ``1`` would be another parameter, and a quote of the
    driver next to one of the statement would be read as one quote.
    """
    shape = template.shape
    before, after = shape[start - 1 : start] if start else "", shape[end : end + 1]
    if any(beside and _JOINS.match(beside) for beside in (before, after)):
        written = template.source(shape[start:end])
        raise StatementRefused(
            f"{written} is part of a longer word: put spaces around it, or, for a name, {_AS_A_NAME}"
        )


def _refuse_typed_literal(template: Template, token: Token, dialect: Dialect) -> None:
    typed = {"postgres": _TYPED, "mysql": _TYPED_IN_MYSQL}.get(dialect.name)
    if typed is not None and (found := typed.search(template.shape[: token.start])):
        word = found[0].strip()
        written = template.source(template.shape[token.start : token.end])
        raise StatementRefused(f"{word} {written} cannot be bound: write CAST({written} AS {word})")


def _refuse_structures(parts: Iterable[Part]) -> None:
    for placeholder in named(tuple(parts)):
        if placeholder.declared is not None and placeholder.declared.type in ("array", "object"):
            kind = placeholder.declared.type
            raise StatementRefused(f"{placeholder.source} is an {kind}, which cannot be part of a text")


def _refuse_free_texts(template: Template) -> None:
    for placeholder in template.placeholders:
        declared = placeholder.declared
        if declared is not None and declared.structured:
            raise StatementRefused(
                f"textual substitution refuses input '{placeholder.name}': {declared.type} is not a single value"
            )
        if declared is None or declared.type != "string":
            continue
        members = declared.enum or ()
        if not members or not all(_PASTABLE.fullmatch(str(member)) for member in members):
            raise StatementRefused(
                f"textual substitution refuses input '{placeholder.name}': a string needs an enum of plain words"
            )


def _refuse_foreign(code: str, dialect: Dialect) -> None:
    if dialect.foreign is not None and (found := dialect.foreign.search(code)):
        raise StatementRefused(
            f"'{found[0]}' is a parameter of the database: write {{{{ inputs.x }}}} instead"
        )


def _one_statement(shape: str, lexed: tuple[Token, ...]) -> str:
    """The statement's code alone, a quoted thing in it replaced by a space."""
    code = "".join(
        shape[token.start : token.end] if token.kind == "code" else " " if token.kind == "comment" else "\0"
        for token in lexed
    )
    statement, _, rest = code.partition(";")
    if rest.strip(" \t\r\n\f;"):
        raise StatementRefused("these are several statements: a tool may have one")
    if not statement.strip():
        raise StatementRefused("the statement is empty")
    return statement.replace("\0", " ")
