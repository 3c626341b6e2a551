"""What the tests of SQL statements share: inputs, variables, and statements made of them."""

from __future__ import annotations

from typing import Literal

import pytest

from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import Bound, StatementRefused, bind, compile_statement

Sql = Literal["sqlite", "postgres", "mysql"]
DIALECTS: tuple[Sql, ...] = ("sqlite", "postgres", "mysql")
MARK = {"sqlite": "?", "postgres": "$1", "mysql": "%s"}

INPUTS = {
    "q": Input("string", optional=True),
    "user-id": Input("int", optional=True),
    "n": Input("int", optional=True),
    "f": Input("float", optional=True),
    "on": Input("boolean", optional=True),
    "day": Input("datetime", optional=True),
    "col": Input("string", optional=True, enum=("name", "email", "users.name")),
    "way": Input("string", optional=True, enum=("ASC", "DESC")),
    "span": Input("string", optional=True, enum=("7 days", "1 month")),
    "raw": Input("string", optional=True, enum=("a; DROP TABLE users", "b")),
}
ENV = {"SCHEMA": "main", "TENANT": "it's {{ inputs.q }}", "EVIL": "users; DROP TABLE users", "QUOTE": 'a"b'}


def bound(template: str, dialect: Sql = "sqlite", *, textual: bool = False, **values: object) -> Bound:
    return bind(compile_statement(template, dialect, INPUTS, ENV.get, textual=textual), values)


def refused(template: str, dialect: Sql = "sqlite", *, textual: bool = False) -> str:
    with pytest.raises(StatementRefused) as refusal:
        compile_statement(template, dialect, INPUTS, ENV.get, textual=textual)
    return str(refusal.value)
