"""Arguments that look like files, by the schemas of servers that people use."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.file_arguments import MOST_PROPOSALS, FileArgument, propose
from tests.cpu_time import at_most


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


TEXT = {"type": "string"}
OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}


@pytest.mark.parametrize(
    ("definition", "direction", "reason"),
    [
        (tool("read_text", path=TEXT), "consume", "it is called path"),
        (tool("ask", imagePath=OPTIONAL), "consume", "it is called imagePath"),
        (tool("upload", paths={"type": "array", "items": TEXT}), "consume", "it is called paths"),
        (tool("write_note", filename=TEXT), "produce", "it is called filename"),
        (tool("take_screenshot", filename={"type": ["string", "null"]}), "produce", "it is called filename"),
        (tool("x", output_file=TEXT), "produce", "it is called output_file"),
        (
            tool("x", data={**TEXT, "contentEncoding": "base64"}),
            "consume",
            "its schema says that it holds base64",
        ),
        (tool("x", data={**TEXT, "format": "file-path"}), "consume", "its format is file-path"),
        (tool("x", document={**TEXT, "x-mcp-file": {}}), "consume", "its schema has x-mcp-file"),
        (
            tool("x", subject={**TEXT, "description": "Absolute path to the file."}),
            "consume",
            'its description says "path to the file"',
        ),
        (
            tool("x", title={**TEXT, "description": "File name to save the page to."}),
            "produce",
            'its description says "File name"',
        ),
        (
            tool("x", image={**TEXT, "description": "The path of the image."}),
            "consume",
            "it is called image, and its description speaks of a path",
        ),
    ],
    ids=str,
)
def test_an_argument_is_proposed_with_its_reason(
    definition: dict[str, Any], direction: str, reason: str
) -> None:
    """By its name, its format, its encoding, a mark, or its description."""
    (found,) = propose([definition])
    assert (found.tool, found.direction, found.reason) == (definition["name"], direction, reason)
    assert found.base64 == ("base64" in reason)


@pytest.mark.parametrize(
    "properties",
    [
        {"directory_path": TEXT},
        {"repo_path": TEXT},
        {"path": {"type": "integer"}},
        {"path": {"type": "object"}},
        {"query": TEXT},
        {"profile": TEXT},
        {"image": {**TEXT, "description": "Name of a container image."}},
        {"path": True},
    ],
    ids=str,
)
def test_no_file_is_seen_where_none_is(properties: dict[str, Any]) -> None:
    """Folders, numbers, addresses, words that only contain one."""
    assert propose([tool("x", **properties)]) == []


@pytest.mark.parametrize(
    "name", ["list_directory", "create_folder", "directoryTree", "search_files", "listFiles"]
)
def test_a_tool_for_folders_takes_no_files(name: str) -> None:
    """Its path leads to a folder."""
    assert propose([tool(name, path=TEXT)]) == []


@pytest.mark.parametrize(
    ("annotations", "edits"),
    [
        ({}, True),
        (None, True),
        ({"readOnlyHint": False}, True),
        ({"readOnlyHint": "true"}, True),
        ({"destructiveHint": False}, True),
        ({"readOnlyHint": True}, False),
    ],
    ids=str,
)
def test_a_tool_may_edit_what_it_takes_unless_it_only_reads(annotations: object, edits: bool) -> None:
    """A tool that says nothing about itself may do anything to a file at a path."""
    [proposed] = propose([{**tool("open", path=TEXT), "annotations": annotations}])
    assert proposed.edits is edits


def test_content_is_never_edited() -> None:
    """A tool that gets the content has no file that it could change; neither has one that writes a new one."""
    tools = [tool("read", data={**TEXT, "contentEncoding": "base64"}), tool("write", filename=TEXT)]
    assert [each.edits for each in propose(tools)] == [None, None]


def test_a_tool_may_take_one_file_and_write_another() -> None:
    """The names tell which is which."""
    assert propose([tool("convert", source_path=TEXT, target_path=TEXT)]) == [
        FileArgument("convert", "source_path", "consume", "it is called source_path", edits=True),
        FileArgument("convert", "target_path", "produce", "it is called target_path"),
    ]


keys = st.sampled_from(
    ["name", "inputSchema", "properties", "path", "items", "anyOf", "type", "description", "format"]
)
plain = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(keys, inner)))
def test_definitions_may_be_anything(value: Any) -> None:
    """The list is a stranger's."""
    propose([value])


def test_a_hostile_list_costs_little() -> None:
    """The number of proposals, of arguments looked at, and the length of a description that is read are bounded."""
    text = "save " * 1_000_000
    many = {f"path{number}": {**TEXT, "description": text} for number in range(10_000)}
    with at_most(2):
        found = propose([tool("x" * 100_000, **many)] * 1000)
    assert len(found) == MOST_PROPOSALS
    assert len(json.dumps(found[0].reason)) < 200
