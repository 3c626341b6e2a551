"""Arguments of tools that take files. Pure.

Some are marked by the adapter's words in a definition as a client sees it. Others look like files: those are proposals
for adapters, each with its reason, for people to judge, and nothing of them is applied to a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from adapter.rules.files.tool_definitions import SchemaPath, followed
from adapter.rules.text.unicode import shown
from adapter.wire.envelope import value_at

Direction = Literal["consume", "produce"]

MOST_PROPOSALS = 100
"""Proposals of one server. One that has more names for files than that is not read by a person."""

_MOST_ARGUMENTS = 10_000
_LONGEST_DESCRIPTION = 2000
_MARK = "x-mcp-file"

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

_FILE_WORDS = frozenset(["file", "files", "filename", "filenames", "filepath", "filepaths", "path", "paths"])
_MEDIA_WORDS = frozenset(
    ["image", "images", "photo", "document", "attachment", "attachments", "pdf", "audio", "video"]
)
_INPUT_WORDS = frozenset(["source", "src", "input", "in", "from"])
_OUTPUT_WORDS = frozenset(["output", "out", "dest", "destination", "target", "save", "export"])
_FOLDER_TOOLS = frozenset({"directory", "directories", "folder", "folders", "dir", "tree"})
_SEEKING = frozenset({"search", "find", "list", "glob", "grep"})
_NO_FILE_WORDS = frozenset((
    "dir", "directory", "folder", "root", "cwd", "repo", "repository", "url", "uri", "json", "id",
    "type", "format", "pattern",
))  # fmt: skip
_FILE_FORMATS = ("path", "file-path", "filepath", "file")

_WRITING = frozenset((
    "write", "save", "screenshot", "export", "download", "create", "render", "draw", "generate",
    "convert", "record", "print", "plot",
))  # fmt: skip
_FILE_TEXT = re.compile(
    r"\b(?:paths? (?:to|of) (?:an? |the |each |local ){0,3}(?:\w{1,20} )?files?|file ?paths?|file ?names?"
    r"|files? to (?:upload|read|open|send|attach))\b",
    re.IGNORECASE,
)
_SAVING_TEXT = re.compile(
    r"\b(?:save|write|store|export)[a-z]{0,3} (?:\w{1,20} ){0,4}(?:to|as|in)\b|\boutput file\b", re.IGNORECASE
)


class FileArgument(NamedTuple):
    """An argument that looks like a file. ``reason`` says by what; ``base64``: it holds the content, not a path.

    ``edits``: the tool may change the file at the path that it takes, for its definition does not say that it only
    reads; None for an argument that is no such path.
    """

    tool: str
    argument: str
    direction: Direction
    reason: str
    base64: bool = False
    edits: bool | None = None


def propose(tools: list[Any]) -> list[FileArgument]:
    """Return the arguments of these tool definitions that look like files, in their order.

    There are 100 at most, of the first 10,000 arguments. What is no definition is passed over: the list is a server's.
    """
    seen = islice(_arguments(tools), _MOST_ARGUMENTS)
    proposals = (_proposal(tool, argument, definition) for tool, argument, definition in seen)
    return list(islice(filter(None, proposals), MOST_PROPOSALS))


def may_edit(tool: Mapping[str, Any]) -> bool:
    """Tell whether the definition of a tool leaves open if it changes anything (annotation ``readOnlyHint``, MCP
    2025-03-26 and later)."""
    hints = tool.get("annotations")
    return not (isinstance(hints, Mapping) and hints.get("readOnlyHint") is True)


def _arguments(tools: list[Any]) -> Iterator[tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
    for tool in tools:
        name, properties = value_at(tool, "name"), value_at(tool, "inputSchema", "properties")
        if isinstance(name, str) and isinstance(properties, Mapping):
            for argument, definition in properties.items():
                if isinstance(definition, Mapping):
                    yield tool, argument, definition


def _proposal(tool: Mapping[str, Any], argument: str, definition: Mapping[str, Any]) -> FileArgument | None:
    values = _text_schema(definition)
    if values is None:
        return None
    several = values is not definition and "items" in definition
    name: str = tool["name"]
    words, text = _words(argument), _description(definition)
    inline = values.get("contentEncoding") == "base64" or values.get("format") in ("byte", "binary")
    marked = _MARK in definition or _MARK in values
    if _is_for_folders(_words(name)) and not (marked or inline):
        return None
    reason = f"its schema has {_MARK}" if marked else _reason(argument, words, values, text, inline)
    if reason is None:
        return None
    saves = not words.isdisjoint(_OUTPUT_WORDS) or bool(_SAVING_TEXT.search(text))
    produces = (
        not inline
        and words.isdisjoint(_INPUT_WORDS)
        and (saves or (not several and not _words(name).isdisjoint(_WRITING)))
    )
    if produces:
        return FileArgument(name, argument, "produce", reason)
    return FileArgument(name, argument, "consume", reason, inline, None if inline else may_edit(tool))


def _is_for_folders(words: frozenset[str]) -> bool:
    """Tell whether the words in a tool's name say that its path leads to a folder: ``search_files`` looks below one."""
    return not words.isdisjoint(_FOLDER_TOOLS) or ("files" in words and not words.isdisjoint(_SEEKING))


def _text_schema(definition: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of the text that an argument holds: its own, that of its items, or that of one alternative."""
    for schema in (definition, definition.get("items"), *_alternatives(definition)):
        if isinstance(schema, Mapping) and _is_text(schema):
            return schema
    return None


def _alternatives(definition: Mapping[str, Any]) -> list[Any]:
    found = [definition.get("anyOf"), definition.get("oneOf")]
    return [each for branches in found if isinstance(branches, list) for each in branches[:8]]


def _is_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _reason(
    argument: str, words: frozenset[str], values: Mapping[str, Any], text: str, inline: bool
) -> str | None:
    if inline:
        return "its schema says that it holds base64"
    if values.get("format") in _FILE_FORMATS:
        return f"its format is {values['format']}"
    if not words.isdisjoint(_NO_FILE_WORDS):
        return None
    if not words.isdisjoint(_FILE_WORDS):
        return f"it is called {shown(argument, 64)}"
    if found := _FILE_TEXT.search(text):
        return f'its description says "{shown(found[0], 64)}"'
    if not words.isdisjoint(_MEDIA_WORDS) and "path" in text.lower():
        return f"it is called {shown(argument, 64)}, and its description speaks of a path"
    return None


def _description(definition: Mapping[str, Any]) -> str:
    text = definition.get("description")
    return text[:_LONGEST_DESCRIPTION] if isinstance(text, str) else ""


def _words(name: str) -> frozenset[str]:
    """The words of a name in any of the usual spellings: ``savePath``, ``save_path``, ``save-path``."""
    return frozenset(word.lower() for word in _WORD.findall(name[:256]))


_HANDLE, _HELPER = " handle from ", "_get_upload_url"
_MOST_SCHEMAS = 256
"""Schemas of one definition that are looked at."""

_MOST_MEMBERS = 1000
_LONGEST_NAME = 256
_LONGEST_SENTENCE = 1024
_BRANCHES = ("anyOf", "oneOf", "allOf")


_Value = tuple[tuple[str | int, ...], int, Any]
"""A value at a place of arguments, and how many names lead to it."""


class MarkedArgument(NamedTuple):
    """An argument that takes handles of files.

    ``names`` lead to it in the arguments, through lists as if they were not there. ``description`` stands at ``place``
    of the definition. ``helper`` is the tool that gives out upload URLs.
    """

    names: tuple[str, ...]
    place: SchemaPath
    description: str
    helper: str


def marked_arguments(input_schema: Any) -> Iterator[MarkedArgument]:
    """The arguments of which the adapter says that they take its handles."""
    pending: list[tuple[tuple[str, ...], SchemaPath, Any]] = [((), ("inputSchema",), input_schema)]
    for _ in range(_MOST_SCHEMAS):
        if not pending:
            return
        names, place, schema = pending.pop()
        place, schema = followed(input_schema, place, schema)
        if not isinstance(schema, dict):
            continue
        description = schema.get("description")
        if names and isinstance(description, str) and (helper := _helper_in(description)):
            yield MarkedArgument(names, (*place, "description"), description, helper)
            continue
        properties = schema.get("properties")
        if isinstance(properties, dict):
            pending += [
                ((*names, name), (*place, "properties", name), each)
                for name, each in islice(properties.items(), _MOST_SCHEMAS)
            ]
        pending.append((names, (*place, "items"), schema.get("items")))
        for key in _BRANCHES:
            if isinstance(branches := schema.get(key), list):
                pending += [
                    (names, (*place, key, number), each)
                    for number, each in enumerate(branches[:_MOST_SCHEMAS])
                ]


def unmarked(input_schema: Any, names: Sequence[str]) -> list[str]:
    """Those of ``names`` at the top of a schema at or below which no argument takes handles."""
    marked = {mark.names[0] for mark in marked_arguments(input_schema)}
    return [name for name in names if name not in marked]


def texts_at(arguments: Any, names: Sequence[str]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The texts that arguments have at ``names``, each with its place, among the first 1,000 values there."""
    for place, depth, value in islice(_values(arguments, names), _MOST_MEMBERS):
        if depth == len(names) and isinstance(value, str):
            yield place, value


def _values(arguments: Any, names: Sequence[str]) -> Iterator[_Value]:
    """Each value on the way, in their order. Places are made one by one: those of lists in lists are long."""
    pending: list[Iterator[_Value]] = [iter([((), 0, arguments)])]
    while pending:
        found = next(pending[-1], None)
        if found is None:
            pending.pop()
            continue
        yield found
        place, depth, value = found
        if isinstance(value, list):
            pending.append(_items(place, depth, value))
        elif depth < len(names) and isinstance(value, dict) and (name := names[depth]) in value:
            pending.append(iter([((*place, name), depth + 1, value[name])]))


def _items(place: tuple[str | int, ...], depth: int, values: list[Any]) -> Iterator[_Value]:
    for number, each in enumerate(values):
        yield (*place, number), depth, each


def _helper_in(description: str) -> str | None:
    """The name of the tool in the adapter's sentence, which is the last of a description."""
    _, found, rest = description[-_LONGEST_SENTENCE:].rpartition(_HANDLE)
    name = rest[: _LONGEST_NAME + 1].partition(",")[0]
    return name if found and name.endswith(_HELPER) and " " not in name else None
