"""Which arguments are mirrored by headers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from adapter.rules.calls.arguments import DEEPEST, annotated, headers_of


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
