"""Output schemas that allow a list of artifacts: what was valid stays valid, and is so with the list."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema.validators import validator_for

from adapter.rules.files.structured_artifacts import MEMBERS, allowing, free_members
from adapter.rules.files.tool_definitions import Wrapped, wrapped

DRAFTS = ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
FILES = [
    {
        "uri": "artifact://sessions/s/a/x.png",
        "name": "x.png",
        "mimeType": "image/png",
        "size": 3,
        "sha256": "ab" * 32,
    }
]
CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def allowed(schema: dict[str, Any]) -> Any:
    """The schema as a client sees it."""
    text = json.dumps(schema).encode()
    return json.loads(allowing(text, schema, free_members(schema)))


def accepts(schema: dict[str, Any], instance: Any) -> bool:
    return bool(validator_for(schema)(schema).is_valid(instance))


# --- whatever the schema --------------------------------------------------------------------------------------

LEAVES: list[dict[str, Any]] = [{}, {"type": "integer"}, {"type": "string"}, {"const": {"$ref": "#"}}]
OWN = "https://example.com/out"
# Only below a property may a schema come round to itself.
LOOPS: list[dict[str, Any]] = [{"$ref": "#"}, {"not": {"$ref": "#"}}, {"$ref": "#/$defs/inner"}]
KEYS = st.sampled_from(["n", "s", "inner"])


def objects(children: st.SearchStrategy[Any], *references: str) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of objects that forbid, demand and combine in any way."""
    several = st.lists(children, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", ["object", "null"]]),
            "properties": st.dictionaries(KEYS, children | st.sampled_from([*LEAVES, *LOOPS]), max_size=2),
            "required": st.lists(KEYS, unique=True, max_size=2),
            "additionalProperties": st.booleans() | st.sampled_from([*LEAVES, {"not": {}}]),
            "unevaluatedProperties": st.booleans() | st.sampled_from(LEAVES),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "."]), st.sampled_from(LEAVES)),
            "propertyNames": st.sampled_from([{"maxLength": 5}, {"pattern": "^n"}]),
            "maxProperties": st.integers(0, 2),
            "enum": st.just([{}, {"n": 1}]),
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": children,
            "if": children,
            "then": children,
            "else": children,
            "$ref": st.sampled_from(["#/$defs/closed", *references]),
            "x-hint": st.just("nothing"),
        },
    )


NESTED = st.recursive(st.sampled_from(LEAVES), objects, max_leaves=4)
INSTANCES = st.recursive(
    st.integers(0, 2) | st.sampled_from(["text", None]),
    lambda inner: st.dictionaries(KEYS | st.sampled_from(["artifacts", "a"]), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Roots with definitions, of either draft, some of them with an address of their own."""
    dialect = draw(st.sampled_from([None, *DRAFTS]))
    # In draft 7 an address beside a reference does not count.
    named = dialect != DRAFTS[1] and draw(st.booleans())
    root = draw(objects(NESTED, "#/$defs/inner", f"{OWN}#/$defs/inner" if named else "#/$defs/inner"))
    root["$defs"] = {"inner": draw(NESTED), "closed": CLOSED}
    return root | ({"$schema": dialect} if dialect else {}) | ({"$id": OWN} if named else {})


@given(schemas(), INSTANCES)
def test_what_was_valid_stays_valid_and_is_so_with_artifacts(schema: dict[str, Any], instance: Any) -> None:
    """Whatever the schema forbids, and also where the tool has a member of the first name without saying so."""
    seen = allowed(schema)
    # Draft 7 ignores the type that MCP demands beside a reference.
    assume(isinstance(instance, dict) or schema.get("type") != "object")
    assume(accepts(schema, instance))
    assert accepts(seen, instance)
    if isinstance(instance, dict):
        name = next(name for name in MEMBERS if name not in instance)
        assert accepts(seen, {**instance, name: FILES})


# --- the forms that tools have --------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [CLOSED, CLOSED | {"additionalProperties": {"not": {}}}])
def test_a_closed_schema_has_one_property_more(schema: dict[str, Any]) -> None:
    """What it forbade it forbids, and the list is checked."""
    seen = allowed(schema)
    assert {**seen, "properties": None} == {**schema, "properties": None}
    assert seen["properties"].keys() == {"n", "artifacts"}
    assert accepts(seen, {"n": 1, "artifacts": FILES})
    assert not accepts(seen, {"n": 1, "other": 2})
    assert not accepts(seen, {"artifacts": [{"uri": "artifact://x"}]})


def test_all_else_in_the_definition_keeps_its_bytes() -> None:
    """Only the property is new, and none of it where artifacts are not listed."""
    sent = b'{"name":"x", "outputSchema":{"type" : "object","properties":{ "n":{"maximum":1.0e2} }},"z":1}'
    raw, changed = wrapped(sent, Wrapped("producer"), structured=True)
    before, space, behind = sent[:-1].partition(b" }},")
    assert raw.startswith(before + b',"artifacts":{') and space + behind in raw
    assert changed == {"description", "outputSchema"}
    assert b"artifacts" not in wrapped(sent, Wrapped("producer"))[0]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"artifacts": {"type": "array"}}, "adapter_artifacts"),
        ({"inner": {"properties": {"artifacts": {}}}}, "adapter_artifacts"),
        ({"adapter_artifacts": {}}, "artifacts"),
    ],
)
def test_a_member_of_the_tools_own_stays_its_own(properties: dict[str, Any], name: str) -> None:
    """The other name is free then."""
    schema = {"type": "object", "properties": properties}
    assert free_members(schema) == (name,)
    assert allowed(schema)["properties"][name]["description"].startswith("Files that the tool wrote")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": ["string", "null"]},
        True,
        {"required": ["artifacts", "adapter_artifacts"]},
        json.loads('{"not":' * 100 + "{}" + "}" * 100),
    ],
)
def test_a_schema_without_room_stays(schema: Any) -> None:
    """What is no object, uses both names or is nested too deep leaves as it came."""
    assert free_members(schema) == ()
    sent = json.dumps({"name": "x", "outputSchema": schema}).encode()
    assert json.loads(wrapped(sent, Wrapped("producer"), structured=True)[0])["outputSchema"] == schema


def test_a_tool_without_a_schema_gets_none() -> None:
    """A host that reads one would wait for structured content."""
    raw, changed = wrapped(b'{"name":"x"}', Wrapped("producer"), structured=True)
    assert "outputSchema" not in json.loads(raw) and changed == {"description"}
    assert free_members(None) == MEMBERS


def test_references_lead_where_they_led() -> None:
    """A schema that is moved keeps the tool's own in sight of hosts that only show it."""
    schema = {
        "$schema": DRAFTS[0],
        "type": "object",
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"properties": {"next": {"$ref": "#"}, "$ref": {"const": {"$ref": "#"}}}}},
        "unevaluatedProperties": False,
    }
    seen = allowed(schema)
    assert seen.keys() == {"$schema", "type", "anyOf"}
    moved = seen["anyOf"][0]
    assert moved["$ref"] == "#/anyOf/0/$defs/Node"
    assert moved["$defs"]["Node"]["properties"] == {
        "next": {"$ref": "#/anyOf/0"},
        "$ref": {"const": {"$ref": "#"}},
    }
    assert not accepts(seen, {"other": 1})
    assert accepts(seen, {"next": {"next": {}}}) and not accepts(seen, {"next": {"other": 1}})


def test_many_deep_references_take_little_memory() -> None:
    """Servers send definitions of up to a megabyte: what is noted of a value must not grow by its depth."""
    deep: dict[str, Any] = {"allOf": [{"$ref": "#"}] * 2000 + [0] * 5000}
    for _ in range(45):
        deep = {"properties": {"a": deep}}
    sent = json.dumps({"name": "x", "outputSchema": {"allOf": [deep]}}).encode()
    tracemalloc.start()
    try:
        raw = wrapped(sent, Wrapped("producer"), structured=True)[0]
        assert tracemalloc.get_traced_memory()[1] < 100 * len(sent)
    finally:
        tracemalloc.stop()
    assert raw.count(b'"#/anyOf/0"') == 2000
