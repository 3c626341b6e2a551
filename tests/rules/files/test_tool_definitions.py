"""What a wrapped tool says about files, and the handles its schema takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapter.rules.files.tool_definitions import Wrapped, wrapped

RULE = Wrapped("consumer", "path", "one_get_upload_url")


def schema_of(argument: dict[str, Any], rule: Wrapped = RULE) -> Any:
    """What becomes of the schema of a tool's only argument."""
    definition = {"name": "x", "inputSchema": {"type": "object", "properties": {"path": argument}}}
    raw, changed = wrapped(json.dumps(definition).encode(), rule)
    assert changed == {"description", "inputSchema"}
    schema = json.loads(raw)["inputSchema"]["properties"]["path"]
    description = schema.pop("description", None) or schema["items"].pop("description")
    assert description.endswith(RULE.of_argument)
    return schema


def test_sentences_follow_the_description() -> None:
    """How to give it a file, and how its own come back; all other bytes stay."""
    rule = Wrapped("both", "path", "one_get_upload_url", "art://", "up://")
    sent = b'{"name":"x", "description":"Edits. ","n":1e400,"inputSchema":{"type":"object"} }'
    said = (
        "Edits.\\n\\nTo give it a local file, first upload the file to the URL from one_get_upload_url, then pass the "
        "up:// handle as path. A file it produces comes back as an art:// URI."
    )
    assert wrapped(sent, rule) == (sent.replace(b"Edits. ", said.encode()), frozenset({"description"}))


def test_a_tool_that_edits_says_where_its_changes_are() -> None:
    """A model that went on with the handle of the first file would lose the change."""
    rule = Wrapped("consumer", "path", "one_get_upload_url", "art://", edits=True)
    raw, _ = wrapped(b'{"name":"x"}', rule)
    assert json.loads(raw)["description"].endswith(
        "pass the upload:// handle as path. It changes a copy of the file. The copy comes back as a new art:// URI; "
        "pass that one for the next change."
    )


def test_tool_without_description_has_one_then() -> None:
    """A producer speaks of what it produces only, and its schema stays."""
    sent = b'{"name":"x","inputSchema":{"properties":{"path":{"enum":["a"]}}}}'
    raw, changed = wrapped(sent, Wrapped("producer", "path"))
    assert json.loads(raw)["description"] == "A file it produces comes back as an artifact:// URI."
    assert raw.startswith(sent[:-1]) and changed == {"description"}


@pytest.mark.parametrize(
    ("argument", "accepting"),
    [
        ({"type": "string", "description": "The file."}, {"type": "string"}),
        (
            {"type": "string", "pattern": "^/", "format": "binary", "title": "P"},
            {"type": "string", "title": "P"},
        ),
        (
            {"type": "string", "format": "uri", "minLength": 1},
            {"type": "string", "format": "uri", "minLength": 1},
        ),
        ({"type": "string", "minLength": 500, "maxLength": 20}, {"type": "string"}),
        ({"enum": ["a", "b"], "const": "a"}, {}),
        ({"type": ["string", "null"], "default": None}, {"type": ["string", "null"], "default": None}),
        ({"type": "string", "contentEncoding": "base64"}, {"type": "string"}),
        ({"type": "object", "properties": {}, "title": "File"}, {"type": "string", "title": "File"}),
        (
            {"type": "array", "items": {"type": "string", "pattern": "x"}},
            {"type": "array", "items": {"type": "string"}},
        ),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 1}),
        (
            {"anyOf": [{"type": "string", "format": "path"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string", "enum": ["a"]}}, {"type": "null"}]},
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        ),
        ({"anyOf": [{"type": "integer"}]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"oneOf": [{"const": "a"}, {"const": "b"}, True]}, {"anyOf": [{}, {}, True]}),
    ],
)
def test_argument_accepts_a_handle(argument: dict[str, Any], accepting: dict[str, Any]) -> None:
    """What no handle meets goes, a list stays a list of them."""
    assert schema_of(argument) == accepting


def test_argument_deep_in_lists_and_behind_references() -> None:
    """The dotted path is followed through items and ``$ref``; the schema is edited where it stands."""
    definition = {
        "name": "x",
        "inputSchema": {
            "properties": {"files": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}}},
            "$defs": {"a/b": {"properties": {"path": {"type": "string", "pattern": "x"}}}},
        },
    }
    raw, _ = wrapped(json.dumps(definition).encode(), Wrapped("consumer", "files[].path", "up"))
    schema = json.loads(raw)["inputSchema"]
    assert schema["$defs"]["a/b"]["properties"]["path"] == {
        "type": "string",
        "description": "Takes an upload:// handle from up, or an artifact:// URI.",
    }
    assert schema["properties"] == {"files": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}}}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        {"properties": []},
        {"properties": {"other": {}}},
        {"properties": {"path": True}},
        {"properties": {"path": {"$ref": "#/properties/path"}, "other": {}}, "$ref": "#/missing"},
        {"properties": {"path": {"$ref": "#/$defs/none"}}},
    ],
)
def test_schema_without_the_argument_stays(schema: Any) -> None:
    """The description says it all the same."""
    sent = json.dumps({"name": "x", "inputSchema": schema}).encode()
    raw, changed = wrapped(sent, RULE)
    assert changed == {"description"} and json.loads(raw)["inputSchema"] == schema


def test_circle_of_references_ends() -> None:
    """A schema that refers to itself is edited where the walk stops."""
    schema = {"properties": {"path": {"$ref": "#/properties/path"}}}
    raw, _ = wrapped(json.dumps({"name": "x", "inputSchema": schema}).encode(), RULE)
    assert json.loads(raw)["inputSchema"]["properties"]["path"]["$ref"] == "#/properties/path"


def test_what_is_no_object_stays() -> None:
    """A list of tools may hold anything."""
    assert wrapped(b"[1]", RULE) == (b"[1]", frozenset())
