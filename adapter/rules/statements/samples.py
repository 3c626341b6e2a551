"""Statements bound to samples of their inputs, so that a database can be asked for its opinion of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from adapter.rules.calls.inputs import Input, InputType
from adapter.rules.statements.statements import Bound, Statement, bind

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
