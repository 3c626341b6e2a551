"""Arguments as words of a command line: each has the type of the schema, or is refused with what there is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.text.unicode import escaped
from adapter.rules.tools.call_arguments import NamedFile, WrongArgument, arguments_of, parse_word, usage

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object"},
        "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "colour": {"$ref": "#/$defs/Colour"},
        "any": {},
    },
    "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}},
}


def read(*words: str, schema: Any = SCHEMA) -> dict[str, Any]:
    return arguments_of("paint", schema, [parse_word(word) for word in words])


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=5", "5"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text=null", "null"),
        ("text=@@me", "@me"),
        ("text:=null", None),
        ("count=5", 5),
        ("count=-12345678901234567890123", -12345678901234567890123),
        ("share=5", 5),
        ("share=0.5", 0.5),
        ("loud=true", True),
        ("loud=False", False),
        ('tags=["a","b"]', ["a", "b"]),
        ('tags:=["a"]', ["a"]),
        ('more={"a": {"b": 1}}', {"a": {"b": 1}}),
        ("perhaps=null", None),
        ("perhaps=7", 7),
        ("either=7", 7),
        ("either=007", "007"),
        ('either:="7"', "7"),
        ("maybe=null", "null"),
        ("colour=red", "red"),
        ("any=5", "5"),
        ("any:=5", 5),
        ("text=@a.txt", NamedFile("a.txt")),
        ("tags=@a.txt", [NamedFile("a.txt")]),
        ("any=@a.txt", NamedFile("a.txt")),
    ],
)
def test_a_word_has_the_type_of_the_schema(word: str, value: object) -> None:
    """A text where the schema takes one, else what JSON makes of it."""
    (found,) = read(word).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["count=five"], "count takes integer, not five."),
        (["count=5.5"], "count takes integer, not 5.5."),
        (["share=NaN"], "share takes number, not NaN."),
        (["loud=1"], "loud takes boolean, not 1."),
        (["tags=a"], "tags takes array, not a."),
        (["tags={}"], "tags takes array, not {}."),
        (["perhaps=x"], "perhaps takes integer or null, not x."),
        (["count=@a"], "count takes integer, not a file."),
        (["count:=five"], "count:= takes JSON, not five."),
        (["more:=" + "[" * 100_000], "more:= takes JSON, not [[["),
        (["colour=green"], "colour is one of red, blue."),
        (["colour=\x1b[31m"], "colour is one of red, blue."),
        (["wrong=1"], "paint has no argument wrong: it takes text, count, share, loud, tags, more, "),
        (["a\x1b[2J=1"], "paint has no argument a\\u001b[2J: "),
        (["text=a", "text=b"], "text is given twice."),
        (["text=@a", "text=@b"], "text is given twice."),
        (["nothing"], "nothing is no argument: write name=value, name:=JSON or name=@path."),
        (["=x"], "=x is no argument"),
        ([":=x"], ":=x is no argument"),
    ],
)
def test_a_wrong_word_is_refused_with_what_there_is(words: list[str], says: str) -> None:
    """Names, types and choices of the tool, in one bounded line without control characters."""
    with pytest.raises(WrongArgument) as refused:
        read(*words)
    assert says in str(refused.value)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 500


def test_files_of_a_list_are_given_one_by_one() -> None:
    """Each word adds one, in their order."""
    assert read("tags=@a", "tags=@b") == {"tags": [NamedFile("a"), NamedFile("b")]}


def test_what_a_tool_needs_is_told() -> None:
    """All names at once."""
    with pytest.raises(WrongArgument, match="paint also needs count, loud"):
        read("text=a", schema={**SCHEMA, "required": ["text", "count", "loud", 5]})


def test_a_tool_may_take_other_names() -> None:
    """Where its schema says so, or names none."""
    assert read("x=1", schema={"type": "object"}) == {"x": "1"}
    assert read("x=1", schema={**SCHEMA, "additionalProperties": True}) == {"x": "1"}
    with pytest.raises(WrongArgument, match="paint has no argument x: it takes no arguments"):
        read("x=1", schema={"properties": {}, "additionalProperties": False})


def test_usage_tells_how_each_is_written() -> None:
    """Brackets stand around what may be left out, and a file is told by the words of its description."""
    schema = {
        "properties": {
            "path": {"type": "string", "description": "From b_get_upload_url."},
            **SCHEMA["properties"],
        },
        "$defs": SCHEMA["$defs"],
        "required": ["path", "count"],
    }
    assert list(usage(schema, ["From", "_get_upload_url"]))[:4] == [
        "path=@file",
        "[text=string]",
        "count=integer",
        "[share=number]",
    ]
    assert list(
        usage({"properties": {"a": {"type": "array", "items": {"description": "From me"}}}}, ["From"])
    ) == ["[a=@file]"]
    assert "[either=integer|string]" in usage(schema, ["!"]) and "[any=value]" in usage(schema, ["!"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "required",
                    "enum",
                    "anyOf",
                    "$ref",
                    "items",
                    "a",
                    "additionalProperties",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(schema=JSON, word=st.sampled_from(["a=1", "a:=[1]", "a=@f", "a=", "b=x"]))
def test_no_schema_breaks_the_reading(schema: Any, word: str) -> None:
    """Whatever a server calls a schema, its words are read or refused with a sentence."""
    try:
        read(word, schema=schema)
    except WrongArgument as refused:
        assert escaped(str(refused)) == str(refused)
    for each in usage(schema, ["x"]):
        assert "=" in each


@given(value=JSON)
def test_json_is_passed_as_it_is(value: Any) -> None:
    """The value behind := is the argument."""
    assert read(f"any:={json.dumps(value)}") == {"any": value}


def test_a_schema_that_refers_to_itself_is_read() -> None:
    """References and alternatives that never end are left off."""
    endless = {
        "properties": {"a": {"$ref": "#/properties/a"}, "b": {"anyOf": [{"$ref": "#/properties/b"}] * 50}}
    }
    assert read("a=1", "b=2", schema=endless) == {"a": "1", "b": "2"}
