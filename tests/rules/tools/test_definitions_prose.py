"""Where the prose of a tool stands, and taking it away or putting other prose there."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.tools.definitions import prose, rewritten
from tests.cpu_time import at_most

keys = st.sampled_from(
    ["title", "description", "properties", "items", "default", "enum", "anyOf", "$defs", "path", "x-ä"]
)
json_values = st.recursive(
    st.none() | st.integers(0, 9) | st.floats(0, 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
)
tools = st.fixed_dictionaries(
    {"name": st.text()},
    optional={
        "title": st.text(),
        "description": st.text(),
        "inputSchema": json_values,
        "outputSchema": json_values,
        "annotations": st.dictionaries(keys, json_values, max_size=3),
        "_meta": json_values,
    },
)
spelled = st.sampled_from(
    [
        lambda value: json.dumps(value),
        lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        lambda value: json.dumps(value, indent=1),
    ]
)

TOOL = rb"""{ "name":"shoot", "title":"Shoot","description" : "Takes a \"shot\".\n",
 "inputSchema":{"type":"object","title":"In","properties":{
   "description":{"type":"string","description":"What it shows"},
   "title":{"type":"string","default":{"description":"data"},"enum":["description","title"]},
   "list":{"type":"array","items":{"title":"Item"},"prefixItems":[{"description":"First"}]}},
  "anyOf":[{"description":"One"}],"$defs":{"default":{"description":"Named default"}},"examples":[{"title":"data"}]},
 "annotations":{"title":"Hint","description":"no prose of MCP"},"_meta":{"description":"kept"},
 "outputSchema":{"descripti\u006fn":"Escaped key"} }"""


def said(definition: bytes) -> list[tuple[str, str]]:
    return [(piece.where, piece.text(definition)) for piece in prose(definition)]


def test_prose_is_found_where_a_model_reads_it() -> None:
    """In schemas wherever a schema stands, under names that are keywords too; not in data, not in _meta."""
    assert said(TOOL) == [
        ("title", "Shoot"),
        ("description", 'Takes a "shot".\n'),
        ("inputSchema", "In"),
        ("inputSchema", "What it shows"),
        ("inputSchema", "Item"),
        ("inputSchema", "First"),
        ("inputSchema", "One"),
        ("inputSchema", "Named default"),
        ("annotations", "Hint"),
        ("outputSchema", "Escaped key"),
    ]


def test_member_that_appears_twice_is_found_twice() -> None:
    """A client may read either."""
    assert said(b'{"description":"evil","name":"x","description":"good"}') == [
        ("description", "evil"),
        ("description", "good"),
    ]


def test_what_is_no_object_has_no_prose() -> None:
    """A list of tools may hold anything."""
    for odd in (b'["description"]', b'[{"description":"x"}]', b'"description"', b"7", b"null", b"{}"):
        assert said(odd) == []


def test_texts_are_put_in_place_and_taken_away() -> None:
    """With one comma for each member that goes, and not a byte else."""
    for before, after in [
        (b'{"description":"x"}', b"{}"),
        (b'{ "description":"x", "a":1 }', b'{ "a":1 }'),
        (b'{"a":1 , "description":"x" }', b'{"a":1  }'),
        (b'{"a":1,"description":"x","b":2}', b'{"a":1,"b":2}'),
        (b'{"description":"x","description":"y"}', b"{}"),
        (b'{"a":1,"description":"x", "description":"y"}', b'{"a":1}'),
        (b'{"inputSchema":{"a":"}","description":"x"},"b":1}', b'{"inputSchema":{"a":"}"},"b":1}'),
    ]:
        assert rewritten(before, [(piece, None) for piece in prose(before)]) == after
    place = list(prose(TOOL))[1]
    assert rewritten(TOOL, [(place, "\ud800")]) == TOOL.replace(rb'"Takes a \"shot\".\n"', rb'"\ud800"')


def without_prose(value: Any, state: str = "tool") -> Any:
    """What is left of a definition without descriptions: the rule in terms of values."""
    if isinstance(value, list):
        return [without_prose(item, "schema" if state == "names" else state) for item in value]
    if not isinstance(value, dict) or state == "data":
        return value
    left = {}
    for key, item in value.items():
        if state in ("tool", "schema") and key == "description" and isinstance(item, str):
            continue
        inner = "schema"
        if state == "tool":
            inner = "schema" if key in ("inputSchema", "outputSchema") else "data"
        elif state == "schema":
            inner = {"default": "data", "enum": "data", "properties": "names", "$defs": "names"}.get(
                key, "schema"
            )
        left[key] = without_prose(item, inner)
    return left


@given(tools, spelled)
def test_taking_descriptions_away_leaves_all_else(tool: dict[str, Any], spell: Any) -> None:
    """However the JSON is spelled."""
    definition = spell(tool).encode()
    dropped = [(piece, None) for piece in prose(definition) if not piece.is_title]
    assert json.loads(rewritten(definition, dropped)) == without_prose(tool)


@given(tools, spelled)
def test_putting_back_what_was_said_changes_nothing(tool: dict[str, Any], spell: Any) -> None:
    """Positions are those of the values."""
    definition = spell(tool).encode()
    same = [(piece, piece.text(definition)) for piece in prose(definition)]
    assert json.loads(rewritten(definition, same)) == tool
    assert rewritten(definition, []) == definition


def test_hostile_depth_takes_linear_time() -> None:
    """A hundred thousand schemas in each other, each with something to say and the last with very much."""
    depth = 100_000
    deep = (
        b'{"inputSchema":'
        + b'{"description":"x","not":' * depth
        + b'"'
        + b"y" * 10**6
        + b'"'
        + b"}" * depth
        + b"}"
    )
    with at_most(5):
        left = rewritten(deep, [(piece, None) for piece in prose(deep)])
    assert b"description" not in left and left.startswith(b'{"inputSchema":{"not":{"not":')
