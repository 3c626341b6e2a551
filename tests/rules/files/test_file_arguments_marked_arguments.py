"""Arguments that take files, found in definitions as the adapter shows them to clients."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.file_arguments import marked_arguments, texts_at, unmarked
from adapter.rules.files.tool_definitions import Wrapped, wrapped
from adapter.wire.envelope import dump, parse

TEXT = {"type": "string"}


def shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("argument", "schema", "names"),
    [
        ("path", shape(path=TEXT), ("path",)),
        ("path", shape(path={"type": "string", "description": "The handle from a door, or so."}), ("path",)),
        ("files", shape(files={"type": "array", "items": TEXT}), ("files",)),
        ("in.file", shape(**{"in": shape(file=TEXT)}), ("in", "file")),
        ("path", shape(path={"anyOf": [TEXT, {"type": "array", "items": TEXT}]}), ("path",)),
        ("path", {**shape(path={"$ref": "#/$defs/File"}), "$defs": {"File": TEXT}}, ("path",)),
    ],
)
def test_what_the_adapter_marks_is_found(argument: str, schema: Any, names: tuple[str, ...]) -> None:
    """With the tool that gives out upload URLs, and the place of the sentence."""
    rule = Wrapped("consumer", argument, "demo_get_upload_url")
    shown = parse(wrapped(dump({"name": "x", "inputSchema": schema}), rule)[0])
    (mark,) = marked_arguments(shown["inputSchema"])
    assert (mark.names, mark.helper) == (names, "demo_get_upload_url")
    found = shown
    for step in mark.place:
        found = found[step]
    assert found == mark.description and mark.description.endswith(rule.of_argument)


@pytest.mark.parametrize(
    "description",
    [
        "A path.",
        "handle from demo_get_upload_url",
        "An upload:// handle from you and me_get_upload_url, or",
        "An upload:// handle from demo_get_upload_url, or" + " more" * 1000,
        5,
    ],
)
def test_other_arguments_are_not(description: object) -> None:
    """Nor one whose words only look like those of the adapter."""
    assert not [*marked_arguments(shape(path={"type": "string", "description": description}))]


def test_texts_are_found_through_lists() -> None:
    """Each with its place; what is no text is left alone."""
    arguments = {"in": [{"file": "a"}, {"file": ["b", 5, ["c"]]}, {}, 7], "file": "d"}
    assert dict(texts_at(arguments, ("in", "file"))) == {
        ("in", 0, "file"): "a",
        ("in", 1, "file", 0): "b",
        ("in", 1, "file", 2, 0): "c",
    }


def test_texts_of_lists_in_lists_need_no_memory() -> None:
    """The places of those that are not looked at are not made."""
    value: list[Any] = ["a"] * 300
    for _ in range(299):
        value = [value, *["a"] * 299]
    tracemalloc.start()
    try:
        found = [*texts_at({"file": value}, ("file",))]
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert found[0] == (("file", *[0] * 300), "a") and len(found) < 1000


def test_names_are_told_that_take_no_files() -> None:
    """An argument takes them as well where something below it does."""
    mark = {
        "type": "string",
        "description": "Takes an upload:// handle from a_get_upload_url, or an artifact:// URI.",
    }
    files = {"type": "array", "items": {"type": "object", "properties": {"path": mark}}}
    schema = {"type": "object", "properties": {"path": mark, "files": files, "mode": {"type": "string"}}}
    assert unmarked(schema, ["mode", "path", "files", "other"]) == ["mode", "other"]
    assert unmarked(None, ["path"]) == ["path"]


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["x handle from a_get_upload_url, or", "b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "anyOf", "description", "a", "$ref"]), inner
        )
    ),
    max_leaves=30,
)


@given(JSON, JSON)
def test_any_schema_and_any_arguments_are_read(schema: Any, arguments: Any) -> None:
    """Without a failure, and each place leads to its text."""
    for mark in marked_arguments(schema):
        for place, text in texts_at(arguments, mark.names):
            found = arguments
            for step in place:
                found = found[step]
            assert found == text
