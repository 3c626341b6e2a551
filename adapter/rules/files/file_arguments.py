"""Arguments of tools that look like files: proposals for adapters, each with its reason. Pure.

A proposal is for people to judge. Nothing here is applied to a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

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
