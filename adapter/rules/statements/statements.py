"""Statements of hosted tools: a template compiled once, and bound to the values of each call. Pure.

No value becomes part of a statement's text, except a name out of an enum and what textual substitution was
asked to let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

from adapter.rules.calls.inputs import Input, InputType, Value
from adapter.rules.statements.binding import SqlStatement, compile_sql
from adapter.rules.statements.mongodb_documents import MongoCommand, compile_mongo
from adapter.rules.statements.redis_commands import RedisCommand, compile_redis
from adapter.rules.statements.sql import DIALECTS
from adapter.rules.statements.templates import (
    Environment,
    EnvironmentFailed,
    Sources,
    StatementRefused,
    SubstitutionFailed,
    parse,
)

__all__ = (
    "Bound",
    "EnvironmentFailed",
    "Kind",
    "Statement",
    "StatementRefused",
    "SubstitutionFailed",
    "bind",
    "compile_statement",
    "reads",
)

Kind = Literal["sqlite", "postgres", "mysql", "redis", "mongodb"]

KINDS: Final[tuple[Kind, ...]] = ("sqlite", "postgres", "mysql", "redis", "mongodb")


@dataclass(frozen=True, slots=True)
class Statement:
    """A compiled template. ``text`` has the driver's placeholders for SQL (``?``, ``$1``, ``%s``) and is the
    template itself for others. ``order`` names the inputs of the binds in their order: a literal has one bind,
    also when several inputs, or none, stand in it. ``environment`` names the variables.
    """

    kind: Kind
    text: str
    order: tuple[str, ...]
    environment: frozenset[str]
    reads: bool
    form: SqlStatement | RedisCommand | MongoCommand = field(repr=False)
    env: Environment = field(repr=False)

    @property
    def pasted(self) -> tuple[str, ...]:
        """The inputs whose values become part of the text: names, and what textual substitution lets through."""
        return self.form.pasted if isinstance(self.form, SqlStatement) else ()


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with the values of one call; ``text`` and ``values`` together tell it from every other.

    SQL: ``values`` belong to the placeholders of ``text``; where there are any, a mysql text has its percent
    signs doubled. redis: ``argv`` is the whole command. mongodb: ``document`` is ``{"database", "command"}``,
    the database missing where the template has none. ``reads``: see ``reads``.
    """

    kind: Kind
    text: str
    values: tuple[Value, ...]
    reads: bool
    argv: tuple[str, ...] = ()
    document: Mapping[str, Any] | None = None


def compile_statement(
    template: str, dialect: Kind, inputs: Mapping[str, Input], env: Environment, *, textual: bool = False
) -> Statement:
    """``env`` is asked at every bind. ``textual`` puts values into an SQL text as they are, for where nothing can be
    bound; it refuses strings without an enum. Raises StatementRefused.
    """
    parsed = parse(template, inputs)
    if textual and dialect not in DIALECTS:
        raise StatementRefused(f"textual substitution is for SQL, not for {dialect}")
    if dialect == "redis":
        form: SqlStatement | RedisCommand | MongoCommand = compile_redis(parsed)
    elif dialect == "mongodb":
        form = compile_mongo(parsed)
    else:
        form = compile_sql(parsed, DIALECTS[dialect], textual=textual)
    text = form.text if isinstance(form, SqlStatement) else template
    return Statement(dialect, text, form.order, parsed.environment, form.reads, form, env)


def bind(statement: Statement, values: Mapping[str, object]) -> Bound:
    """``values`` are those of ``inputs.coerced``. Raises EnvironmentFailed, then SubstitutionFailed where a value
    that the statement needs is absent or cannot stand in its place.
    """
    form, kind, reading = statement.form, statement.kind, statement.reads
    for name in statement.environment:
        if statement.env(name) is None:
            raise EnvironmentFailed(name)
    sources = Sources(values, statement.env)
    if isinstance(form, SqlStatement):
        text, binds = form.filled(sources)
        return Bound(kind, text, binds, reading)
    if isinstance(form, RedisCommand):
        return Bound(kind, statement.text, form.values(sources), reading, argv=form.argv(sources))
    return Bound(kind, statement.text, form.values(sources), reading, document=form.filled(sources))


def reads(statement: Statement) -> bool:
    """Tell whether the statement, by its words, changes nothing; only then may its results be kept."""
    return statement.reads


MOST = 100
"""Samples of one statement: names out of long enums are tried no further."""

_SAMPLES: Final[Mapping[InputType, Any]] = {
    "string": "x",
    "int": 1,
    "float": 1.5,
    "boolean": True,
    "datetime": "2000-01-01",
    "array": [],
    "object": {},
    "any": "x",
}


def sampled(statement: Statement, inputs: Mapping[str, Input]) -> Iterator[Bound]:
    """The statement with a value for each input; with every member of an enum once, as these may become names in it.

    Raises EnvironmentFailed where a variable is missing, or is not what can stand in its place.
    """
    return islice(_sampled(statement, inputs), MOST)


def _sampled(statement: Statement, inputs: Mapping[str, Input]) -> Iterator[Bound]:
    values = {name: one.enum[0] if one.enum else _SAMPLES[one.type] for name, one in inputs.items()}
    yield bind(statement, values)
    for name in dict.fromkeys(statement.pasted):
        for member in (inputs[name].enum or ())[1:]:
            yield bind(statement, {**values, name: member})
