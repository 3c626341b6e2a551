"""Which header mirrors which argument, and when the two disagree."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import HeaderMismatch
from adapter.rules.calls.arguments import DEEPEST, Headers, annotated, check_parameters, headers_of, value_at
from adapter.wire.eras import encode_mirror

CITY: Headers = {("city",): "Mcp-Param-City"}


def test_header_is_found_through_properties_alone() -> None:
    """Not within lists or alternatives, and not by a name that no header can have."""
    schema = {
        "properties": {
            "form": {"properties": {"file": {"x-mcp-header": "File"}}},
            "files": {"items": {"properties": {"path": {"x-mcp-header": "Never"}}}},
            "either": {"oneOf": [{"properties": {"a": {"x-mcp-header": "Never"}}}]},
            "odd": {"x-mcp-header": 7},
            "line": {"x-mcp-header": "A\r\nB"},
            "none": None,
        }
    }
    assert dict(annotated(schema)) == {("form", "file"): "Mcp-Param-File"}
    assert dict(annotated({"properties": []})) == dict(annotated(None)) == {}


def test_header_of_what_lies_very_deep_is_not_looked_for() -> None:
    """A schema is a server's to write, and each path costs its length."""
    for deep, found in ((DEEPEST, 1), (DEEPEST + 1, 0)):
        schema: dict[str, Any] = {"x-mcp-header": "Deep"}
        for _ in range(deep):
            schema = {"properties": {"a": schema}}
        assert len(list(annotated(schema))) == found


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("Bonn", "Bonn"),
        ("=?base64?S8O2bG4=?=", "Köln"),
        ("", ""),
        ("true", True),
        ("42", 42),
        ("42.0", 42),
        ("9007199254740993", 2**53 + 1),
        ("4.2e1", 42),
        (None, None),
        (None, ["Bonn"]),
        ("whatever", {"name": "Bonn"}),
    ],
)
def test_same_values_pass(said: str | None, value: Any) -> None:
    """Numbers compare as numbers; an argument that is null or absent has no header, and one that is a list any."""
    check_parameters(CITY, {"city": value}, {} if said is None else {"mcp-param-city": said})


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("Bonn", "bonn"),
        ("Bonn", None),
        (None, "Bonn"),
        (None, 0),
        ("True", True),
        ("1", True),
        ("true", "True"),
        ("43", 42),
        ("9007199254740992", 2**53 + 1),
        ("4_2", 42),
        ("nan", 42),
        ("", 42),
        ("=?base64?!?=", "x"),
        ("é", "é"),
        ("Bonn, Bonn", "Bonn"),
    ],
)
def test_others_are_a_mismatch(said: str | None, value: Any) -> None:
    """Also a header without its argument, and an argument without its header. The sentence names the header."""
    with pytest.raises(HeaderMismatch, match="Mcp-Param-City"):
        check_parameters(CITY, {"city": value}, {} if said is None else {"mcp-param-city": said})


def test_arguments_that_are_none_have_no_values() -> None:
    """What is no object on the way leads nowhere."""
    assert value_at([{"city": "Bonn"}], ("city",)) is None
    assert value_at({"form": {"city": "Bonn"}}, ("form", "city")) == "Bonn"
    check_parameters(CITY, None, {})


@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), st.booleans()))
def test_what_a_client_encodes_is_what_it_means(value: Any) -> None:
    """A header as the specification has it always agrees with its argument."""
    check_parameters(CITY, {"city": value}, {"mcp-param-city": encode_mirror(value)})


# --- which arguments are mirrored by headers -------------------------------------------------------------------


def test_properties_of_properties_have_headers() -> None:
    """At any depth that honest schemas have; what lists hold and what is no name of a header has none."""
    schema = {
        "properties": {
            "file": {"x-mcp-header": "File", "properties": {"name": {"x-mcp-header": "Name"}}},
            "files": {"items": {"properties": {"path": {"x-mcp-header": "Never"}}}},
            "odd": {"x-mcp-header": 7},
            "bad": {"x-mcp-header": "no\nname"},
            "none": None,
        }
    }
    found = {("file",): "Mcp-Param-File", ("file", "name"): "Mcp-Param-Name"}
    assert dict(annotated(schema)) == found
    definition = json.dumps({"name": "x", "inputSchema": schema}).encode()
    assert headers_of(definition, json.loads(definition)) == found


@pytest.mark.parametrize("definition", [b'{"name":"x"}', b'{"name":"x","inputSchema":7,"y":"x-mcp-header"}'])
def test_most_tools_have_none(definition: bytes) -> None:
    """Nor does one whose schema is none."""
    assert headers_of(definition, json.loads(definition)) == {}


def test_the_word_may_be_escaped() -> None:
    """JSON has several spellings of a key."""
    definition = b'{"name":"x","inputSchema":{"properties":{"a":{"x\\u002dmcp-header":"A"}}}}'
    assert headers_of(definition, json.loads(definition)) == {("a",): "Mcp-Param-A"}


def test_a_schema_of_many_levels_takes_no_more_than_its_size() -> None:
    """A path is written out for each argument, so what is nested without measure has no headers."""
    leaf = {"x-mcp-header": "A"}
    schema: dict[str, Any] = {"properties": {f"p{number}": leaf for number in range(20_000)}}
    for _ in range(900):
        schema = {"properties": {"p": schema}}
    began = time.process_time()
    assert list(annotated(schema)) == []
    assert time.process_time() - began < 0.5
    within: dict[str, Any] = leaf
    for _ in range(DEEPEST):
        within = {"properties": {"p": within}}
    assert dict(annotated(within)) == {("p",) * DEEPEST: "Mcp-Param-A"}
