"""MongoDB commands: values fill leaves and never become structure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import (
    EnvironmentFailed,
    StatementRefused,
    SubstitutionFailed,
    bind,
    compile_statement,
)

INPUTS = {
    "q": Input("string", optional=True),
    "n": Input("int", optional=True),
    "on": Input("boolean", optional=True),
    "by": Input("string", optional=True, enum=("name", "address.city")),
}
ENV = {"DB": "shop", "LIMIT": "20", "LIST": "[1]", "BRACE": '"}'}

FIND = '{"database":"app","command":{"find":"users","filter":{"name":"{{ inputs.q }}"}}}'


def document(command: str, **values: object) -> Any:
    """The command as the driver gets it, its placeholders filled."""
    template = f'{{"database": "app", "command": {command}}}'
    filled = bind(compile_statement(template, "mongodb", INPUTS, ENV.get), values).document
    assert filled is not None
    return filled["command"]


def compiled(command: str) -> None:
    compile_statement(f'{{"command": {command}}}', "mongodb", INPUTS, ENV.get)


def test_h30_a_statement_is_a_database_and_a_command_in_its_order() -> None:
    """The first member names the command, so the order is kept."""
    bound = bind(compile_statement(FIND, "mongodb", INPUTS, ENV.get), {"q": "Ann"})
    assert bound.document == {"database": "app", "command": {"find": "users", "filter": {"name": "Ann"}}}
    assert list(bound.document["command"]) == ["find", "filter"]
    assert (bound.text, bound.values) == (FIND, ("Ann",))


def test_w1_a_leaf_takes_the_typed_value() -> None:
    """With quotes or without: the input's type decides. Inside a longer text it is spelled."""
    command = (
        '{"find":"u","filter":{"a":"{{inputs.n}}","b":{{inputs.on}},"c":"x{{inputs.n}}"},"skip":{{inputs.n}}}'
    )
    assert document(command, n=3, on=True) == {
        "find": "u",
        "filter": {"a": 3, "b": True, "c": "x3"},
        "skip": 3,
    }


@given(st.text())
def test_w1_a_value_never_changes_the_document(value: str) -> None:
    """Quotes, braces and operators of a value stay in its text."""
    bound = bind(compile_statement(FIND, "mongodb", INPUTS, ENV.get), {"q": value})
    assert bound.document == {"database": "app", "command": {"find": "users", "filter": {"name": value}}}
    assert bound.text == FIND


@pytest.mark.parametrize("value", ['", "$ne": "', '{"$gt": ""}', '"}}', "{{ inputs.n }}", "\U000f0000"])
def test_w1_hostile_texts_stay_texts(value: str) -> None:
    """Also where the value looks like a placeholder, or like what stands for one inside."""
    assert document('{"find":"u","filter":{"a":"-{{ inputs.q }}"}}', q=value, n=1)["filter"] == {
        "a": "-" + value
    }


@pytest.mark.parametrize("value", [{"$ne": None}, ["a"], {"$gt": ""}])
def test_w1_operator_objects_are_refused(value: object) -> None:
    """A value is one value, also where whoever calls did not coerce it."""
    with pytest.raises(SubstitutionFailed, match="input 'q' is not a single value"):
        document('{"find":"u","filter":{"a":"{{ inputs.q }}"}}', q=value)


@pytest.mark.parametrize(
    "command",
    [
        '{"aggregate":"u","pipeline":[{"$match":{"$expr":{"$eq":["$owner","{{ inputs.q }}"]}}}]}',
        '{"aggregate":"u","pipeline":[{"$project":{"x":"{{ inputs.q }}"}}]}',
        '{"aggregate":"u","pipeline":[{"$project":{"filter":"{{ inputs.q }}"}}]}',
        '{"find":"u","filter":{},"projection":{"x":"{{ inputs.q }}"}}',
        '{"find":"u","filter":{"$expr":{"$eq":["$owner","{{ inputs.q }}"]}}}',
        '{"update":"u","updates":[{"q":{},"u":[{"$set":{"a":"{{ inputs.q }}"}}]}]}',
        '{"findAndModify":"u","update":[{"$set":{"a":"{{ inputs.q }}"}}]}',
    ],
)
def test_w1_a_text_does_not_become_a_field_of_the_document(command: str) -> None:
    """Where the server reads an expression, a dollar sign in front is refused; other texts pass."""
    assert "plain" in json.dumps(document(command, q="plain"))
    for value in ("$owner", "$$ROOT"):
        with pytest.raises(SubstitutionFailed, match="begins with a"):
            document(command, q=value)


@pytest.mark.parametrize(
    "command",
    [
        '{"find":"u","filter":{"price":"{{ inputs.q }}"}}',
        '{"count":"u","query":{"price":"{{ inputs.q }}"}}',
        '{"insert":"u","documents":[{"price":"{{ inputs.q }}"}]}',
        '{"update":"u","updates":[{"q":{"a":"{{ inputs.q }}"},"u":{"$set":{"a":1}}}]}',
        '{"update":"u","updates":[{"q":{},"u":{"$set":{"a":"{{ inputs.q }}"}}}]}',
        '{"findAndModify":"u","query":{},"update":{"$set":{"from":"{{ inputs.q }}"}}}',
        '{"aggregate":"u","pipeline":[{"$match":{"price":"{{ inputs.q }}"}}]}',
        '{"aggregate":"u","pipeline":[{"$project":{"x":{"$literal":"{{ inputs.q }}"}}}]}',
        '{"aggregate":"u","pipeline":[{"$geoNear":{"query":{"a":"{{ inputs.q }}"}}}]}',
    ],
)
def test_w1_a_price_in_dollars_is_data(command: str) -> None:
    """Where only data can stand, a dollar sign is a letter."""
    assert '"$5"' in json.dumps(document(command, q="$5"))


@pytest.mark.parametrize(
    "command",
    [
        '{"find":"u","filter":{"$where":"this.a == \'{{ inputs.q }}\'"}}',
        '{"find":"u","filter":{"$where":"this.a == \'{{ env.DB }}\'"}}',
        '{"aggregate":"u","pipeline":[{"$set":{"x":{"$function":{"body":"{{ inputs.q }}"}}}}]}',
        '{"mapReduce":"u","map":"{{ inputs.q }}","reduce":"x"}',
        '{"find":"{{ inputs.q }}"}',
        '{"{{ inputs.by | ident }}":"u"}',
        '{"aggregate":"u","pipeline":[{"$out":"{{ inputs.q }}"}]}',
        '{"aggregate":"u","pipeline":[{"$lookup":{"from":"{{ inputs.q }}"}}]}',
        '{"find":"u","sort":{"{{ inputs.q }}":1}}',
        '{"distinct":"u","key":"{{ inputs.q }}","query":{"owner":"me"}}',
        '{"renameCollection":"app.u","to":"{{ inputs.q }}"}',
        '{"create":"v","viewOn":"{{ inputs.q }}"}',
        '{"mapReduce":"u","map":"f","reduce":"g","out":"{{ inputs.q }}"}',
        '{"aggregate":"u","pipeline":[{"$lookup":{"from":"v","localField":"{{ inputs.q }}"}}]}',
        '{"aggregate":"u","pipeline":[{"$lookup":{"from":"v","foreignField":"{{ inputs.q }}"}}]}',
        '{"aggregate":"u","pipeline":[{"$graphLookup":{"connectToField":"{{ inputs.q }}"}}]}',
        '{"aggregate":"u","pipeline":[{"$set":{"x":{"$getField":"{{ inputs.q }}"}}}]}',
        '{"aggregate":"u","pipeline":[{"$set":{"x":{"$getField":{"field":"{{ inputs.q }}"}}}}]}',
        '{"find":"u","filter":{"a":1,"a":"{{ inputs.q }}"}}',
        '{"find":"u","filter":{"a":"\\udb80\\udc00","b":"{{ inputs.q }}"}}',
        '{"find":"u","filter":{"a":NaN}}',
        '{"find":"u"',
        "{}",
        "[]",
    ],
)
def test_w1_code_names_and_broken_documents_are_refused(command: str) -> None:
    """When the tool is compiled, not when it is called."""
    with pytest.raises(StatementRefused):
        compiled(command)


@pytest.mark.parametrize(
    "statement",
    ["[]", '"x"', '{"command":{"ping":1},"other":1}', '{"database":"{{ inputs.q }}","command":{"ping":1}}'],
)
def test_h30_another_shape_is_refused(statement: str) -> None:
    """A statement has a database and a command, and the database is not the caller's choice."""
    with pytest.raises(StatementRefused):
        compile_statement(statement, "mongodb", INPUTS, ENV.get)


def test_w1_names_come_out_of_an_enum() -> None:
    """A collection and the field to sort by are asked for as names."""
    command = '{"find":"{{ inputs.by | ident }}","sort":{"{{ inputs.by | ident }}":-1}}'
    assert document(command, by="address.city") == {"find": "address.city", "sort": {"address.city": -1}}
    with pytest.raises(SubstitutionFailed, match="not one of the allowed names"):
        document(command, by="$where")
    assert document('{"distinct":"u","key":"{{ inputs.by | ident }}"}', by="name")["key"] == "name"


def test_w1_a_member_of_the_data_is_no_name() -> None:
    """Whatever it is called there."""
    command = '{"insert":"u","documents":[{"key":"{{ inputs.q }}","localField":"{{ inputs.q }}"}]}'
    assert document(command, q="$x")["documents"] == [{"key": "$x", "localField": "$x"}]
    assert document('{"find":"u","filter":{"key":"{{ inputs.q }}"}}', q="$x")["filter"] == {"key": "$x"}


def test_h22_environment_fills_leaves() -> None:
    """In quotes a variable is a text, outside it is one number or boolean."""
    statement = compile_statement(
        '{"database":"{{ env.DB }}","command":{"find":"u","limit":{{ env.LIMIT }}}}',
        "mongodb",
        INPUTS,
        ENV.get,
    )
    assert bind(statement, {}).document == {"database": "shop", "command": {"find": "u", "limit": 20}}
    for name in ("LIST", "BRACE"):
        with pytest.raises(EnvironmentFailed, match=name):
            document(f'{{"find":"u","limit":{{{{ env.{name} }}}}}}')


def test_w6_reading_commands_are_known() -> None:
    """A pipeline that writes its result is none."""
    for command, expected in (
        ('{"find":"u"}', True),
        ('{"aggregate":"u","pipeline":[{"$match":{}}]}', True),
        ('{"aggregate":"u","pipeline":[{"$out":"v"}]}', False),
        ('{"delete":"u","deletes":[]}', False),
    ):
        statement = compile_statement(f'{{"command":{command}}}', "mongodb", INPUTS, ENV.get)
        assert statement.reads is expected
