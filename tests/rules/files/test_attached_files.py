"""Definitions that ask a host for files of its conversation, and calls that hold some."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.attached_files import (
    FILE_PARAMS,
    LONGEST_URL,
    AttachedFile,
    FileParameter,
    NotAttached,
    StaysHandle,
    attached_file,
    attached_values,
    declared,
    parameter_of,
    with_handles,
)
from adapter.rules.files.tool_definitions import Wrapped, wrapped
from adapter.rules.schema.checker import compile_schema

PATH = {"type": "string"}
FILE = {"download_url": "https://files.test/1?sig=a", "file_id": "file_1"}
WHOLE = {**FILE, "mime_type": "text/csv", "file_name": "a.csv"}
HANDLE = "upload://sessions/s/1"


def parameter(argument: str) -> FileParameter:
    found = parameter_of(argument)
    assert found is not None
    return found


def tool(schema: dict[str, Any], **members: Any) -> bytes:
    return orjson.dumps({"name": "read", "inputSchema": schema, **members})


def takes(properties: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **members}


def shown(schema: dict[str, Any], argument: str, **members: Any) -> dict[str, Any]:
    """The definition as a host sees it that attaches files."""
    rule = Wrapped("consumer", argument, "raw_get_upload_url")
    definition: dict[str, Any] = orjson.loads(
        declared(wrapped(tool(schema, **members), rule)[0], parameter(argument))
    )
    return definition


def accepts(definition: dict[str, Any], arguments: object) -> bool:
    return not compile_schema(definition["inputSchema"]).judged(arguments).faults


# --- definitions ----------------------------------------------------------------------------------------------


def test_an_argument_takes_files_and_handles() -> None:
    """The object has the four members of OpenAI's reference, of which two are required and no other is allowed."""
    definition = shown(takes({"path": PATH}, required=["path"]), "path")
    assert definition["_meta"] == {FILE_PARAMS: ["path"]}
    good: list[Any] = [FILE, WHOLE, HANDLE]
    bad: list[Any] = [{"download_url": "https://x"}, {"file_id": "1"}, {**FILE, "size": 1}, 1, [FILE]]
    for value in good:
        assert accepts(definition, {"path": value})
    for value in bad:
        assert not accepts(definition, {"path": value})
    assert not accepts(definition, {})
    alternative = definition["inputSchema"]["properties"]["path"]["anyOf"][0]
    assert sorted(alternative["properties"]) == ["download_url", "file_id", "file_name", "mime_type"]
    assert (
        alternative["required"] == ["download_url", "file_id"]
        and alternative["additionalProperties"] is False
    )


def test_a_list_stays_one_at_the_top_of_its_schema() -> None:
    """A host that looks there for lists finds this one."""
    definition = shown(takes({"paths": {"type": "array", "items": PATH, "minItems": 1}}), "paths")
    schema = definition["inputSchema"]["properties"]["paths"]
    assert schema["type"] == "array" and schema["minItems"] == 1
    assert accepts(definition, {"paths": [FILE, HANDLE, WHOLE]}) and not accepts(definition, {"paths": [1]})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"anyOf": [PATH, {"type": "null"}]}, [FILE, HANDLE, None], [[FILE]]),
        ({"type": ["string", "null"], "default": None}, [FILE, HANDLE, None], [1]),
        ({"anyOf": [PATH, {"type": "array", "items": PATH}]}, [FILE, HANDLE, [FILE, HANDLE]], [1, [1]]),
        ({"$ref": "#/$defs/Path"}, [FILE, HANDLE], [1]),
        ({"$ref": "#/$defs/Paths"}, [[FILE], [HANDLE]], [1]),
    ],
)
def test_other_forms_of_schemas_take_files_too(
    schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    """Optional arguments, one or several files, and references."""
    defs = {"Path": PATH, "Paths": {"type": "array", "items": {"$ref": "#/$defs/Path"}}}
    definition = shown(takes({"path": schema}, **{"$defs": defs}), "path")
    assert [value for value in good if not accepts(definition, {"path": value})] == []
    assert [value for value in bad if accepts(definition, {"path": value})] == []


def test_a_nested_argument_is_lifted() -> None:
    """It has the name of its path, and a call may leave out what holds nothing else that is required."""
    options = takes({"file": PATH, "depth": {"type": "integer"}}, required=["file"])
    definition = shown(
        takes({"options": options}, required=["options"], additionalProperties=False), "options.file"
    )
    assert definition["_meta"] == {FILE_PARAMS: ["options_file"]}
    assert accepts(definition, {"options_file": FILE})
    assert accepts(definition, {"options_file": FILE, "options": {"depth": 1}})
    assert accepts(definition, {"options": {"file": HANDLE}})
    assert not accepts(definition, {"options_file": [FILE]})


def test_what_else_is_required_stays_so() -> None:
    """Only the file itself may be left out."""
    options = takes({"file": PATH, "depth": {"type": "integer"}}, required=["file", "depth"])
    definition = shown(takes({"options": options}, required=["options"]), "options.file")
    assert accepts(definition, {"options_file": FILE, "options": {"depth": 1}})
    assert not accepts(definition, {"options_file": FILE}) and not accepts(definition, {"options": {}})


def test_a_list_of_objects_with_nothing_else_is_lifted() -> None:
    """As a list of files."""
    items = {"type": "array", "items": takes({"path": PATH}, required=["path"])}
    definition = shown(takes({"files": items}, required=["files"]), "files[].path")
    assert definition["_meta"] == {FILE_PARAMS: ["files_path"]}
    assert accepts(definition, {"files_path": [FILE, HANDLE]}) and not accepts(
        definition, {"files_path": FILE}
    )


@pytest.mark.parametrize(
    ("schema", "argument", "why"),
    [
        (
            takes({"options": takes({"file": PATH}), "options_file": PATH}),
            "options.file",
            "cannot be lifted: the tool has an argument options_file of its own",
        ),
        (
            takes({"files": {"type": "array", "items": takes({"path": PATH, "title": PATH})}}),
            "files[].path",
            "stands in a list of objects with other members",
        ),
        (
            takes({"files": {"type": "array", "items": takes({"path": PATH})}}),
            "files.path",
            "needs files[] in its path",
        ),
        (takes({"options": takes({"file": PATH})}), "options[].file", "has no list at options[]"),
        (takes({"other": PATH}), "path", "is not in the tool's schema"),
        (
            takes({"path": {**PATH, "x-mcp-header": "File"}}),
            "path",
            "is mirrored in a header, which cannot hold a file",
        ),
        ({}, "path", "is not in the tool's schema"),
    ],
)
def test_some_arguments_stay_handles(schema: dict[str, Any], argument: str, why: str) -> None:
    """The definition stays as it is, and the reason is told."""
    with pytest.raises(StaysHandle) as raised:
        declared(tool(schema), parameter(argument))
    assert str(raised.value) == why


@pytest.mark.parametrize(
    "argument", ["grid[].files[].path", "rows[].paths[]", "a[][].b", "bücher.datei", "a.b c"]
)
def test_some_paths_are_never_lifted(argument: str) -> None:
    """Those through several lists, and those of names that make no plain one."""
    assert parameter_of(argument) is None


def test_what_the_upstream_declares_stays() -> None:
    """Its own parameters and its other metadata."""
    meta = {"other": 1, FILE_PARAMS: ["cover", "path"]}
    definition = shown(takes({"path": PATH, "cover": {}}), "path", _meta=meta)
    assert definition["_meta"] == {"other": 1, FILE_PARAMS: ["cover", "path"]}
    assert shown(takes({"path": PATH}), "path", _meta=None)["_meta"] == {FILE_PARAMS: ["path"]}


_SCHEMAS = st.recursive(
    st.sampled_from([PATH, {}, True, None, {"$ref": "#"}, {"$ref": "#/properties/a"}, {"type": "array"}]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: takes({"a": a, "b": b}, required=["a"]), inner, inner),
        st.builds(lambda a: {"type": "array", "items": a}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
    ),
    max_leaves=12,
)


@given(_SCHEMAS, st.sampled_from(["a", "a.b", "a[].b", "a.b.a", "b[].a.b"]))
def test_any_schema_is_declared_or_stays(schema: Any, argument: str) -> None:
    """Whatever an upstream writes, the definition stays JSON, and names a top-level argument of it."""
    definition = orjson.dumps({"name": "read", "inputSchema": schema})
    try:
        changed = json.loads(declared(definition, parameter(argument)))
    except StaysHandle:
        return
    (name,) = changed["_meta"][FILE_PARAMS]
    assert name == parameter(argument).name
    assert "download_url" in json.dumps(changed["inputSchema"])


# --- calls ----------------------------------------------------------------------------------------------------


def call(**arguments: Any) -> bytes:
    return orjson.dumps({"id": 1, "params": {"name": "read", "arguments": arguments}})


def attached(message: bytes, argument: str) -> list[AttachedFile | None]:
    asked = parameter(argument)
    return [attached_file(each, asked) for each in attached_values(message, asked)]


def handed(message: bytes, argument: str) -> Any:
    """The arguments that the tool gets when each file has become a handle by its id."""
    asked = parameter(argument)
    found = attached_values(message, asked)
    files = [attached_file(each, asked) for each in found]
    handles = [
        str(each.value) if file is None else f"upload://{file.id}"
        for each, file in zip(found, files, strict=True)
    ]
    return orjson.loads(with_handles(message, asked, found, handles))["params"]["arguments"]


def test_files_are_read() -> None:
    """With what the host tells of them; a file without a name is called by its id."""
    assert attached(call(path=FILE), "path") == [AttachedFile(FILE["download_url"], "file_1", "file_1", None)]
    assert attached(call(paths=[WHOLE, HANDLE, {**FILE, "new": 1}]), "paths") == [
        AttachedFile(FILE["download_url"], "file_1", "a.csv", "text/csv"),
        None,
        AttachedFile(FILE["download_url"], "file_1", "file_1", None),
    ]
    assert (
        attached(call(path=None), "path")
        == attached(call(), "path")
        == attached(call(paths=[]), "paths")
        == []
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"file_id": "1"},
        {"download_url": "https://x"},
        {"download_url": None, "file_id": "1"},
        {"download_url": "https://x", "file_id": 1},
        {"download_url": "https://x", "file_id": ["1"]},
        {"download_url": "https://x", "file_id": {"a": 1}},
        {"download_url": "https://" + "x" * LONGEST_URL, "file_id": "1"},
        {"download_url": "https://x", "file_id": "1" * 2000},
        {**FILE, "file_name": 1},
        {**FILE, "mime_type": {}},
        [[FILE]],
        1,
    ],
)
def test_what_is_no_file_is_told(value: Any) -> None:
    """With a sentence that says what it has to be."""
    with pytest.raises(NotAttached, match=r"path must be"):
        attached(call(path=value), "path")


def test_handles_stand_where_files_stood() -> None:
    """What was a handle stays one, and all other bytes of the call stay."""
    assert handed(call(path=FILE), "path") == {"path": "upload://file_1"}
    assert handed(call(paths=[FILE, HANDLE]), "paths") == {"paths": ["upload://file_1", HANDLE]}
    message = b'{"id":1.0,"params":{ "arguments":{"n":1.50,"path":%s , "z":1}}}' % orjson.dumps(FILE)
    asked = parameter("path")
    changed = with_handles(message, asked, attached_values(message, asked), ["upload://1"])
    assert changed == b'{"id":1.0,"params":{ "arguments":{"n":1.50,"path":"upload://1" , "z":1}}}'


def test_lifted_files_go_where_the_tool_wants_them() -> None:
    """The objects on the way are made where the call has none."""
    assert handed(call(options_file=FILE), "options.file") == {"options": {"file": "upload://file_1"}}
    assert handed(call(a_b_c=FILE, a={"x": 1}), "a.b.c") == {"a": {"x": 1, "b": {"c": "upload://file_1"}}}
    assert handed(call(options_file=[FILE, HANDLE]), "options.file") == {
        "options": {"file": ["upload://file_1", HANDLE]}
    }
    assert handed(call(files_path=[FILE, HANDLE]), "files[].path") == {
        "files": [{"path": "upload://file_1"}, {"path": HANDLE}]
    }
    assert handed(call(options_file=HANDLE, n=1), "options.file") == {"n": 1, "options": {"file": HANDLE}}
    nothing: list[Any] = [None, []]
    for empty in nothing:
        assert handed(call(options_file=empty, n=1), "options.file") == {"n": 1}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"options_file": FILE, "options": {"file": HANDLE}}, "not as both"),
        ({"options_file": FILE, "options": [1]}, "options must be an object"),
        ({"options_file": FILE, "options": None}, "options must be an object"),
    ],
)
def test_a_lifted_file_needs_its_place(arguments: dict[str, Any], sentence: str) -> None:
    """Nothing that the call says is overwritten."""
    with pytest.raises(NotAttached, match=sentence):
        handed(call(**arguments), "options.file")
