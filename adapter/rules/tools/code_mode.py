"""Code mode: three tools in the place of all, to search, to describe and to call. No code is run. Pure.

A call through the third is unfolded into the direct call that it stands for, before anything judges it, so that it
walks the same way: its arguments, the ``_meta`` and whatever else its params hold keep their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.rules.tools.search import SearchHit
from adapter.wire.envelope import Envelope, parse
from adapter.wire.spans import Drop, Edit, Replace, edit, find, members

DEFAULT_LIMIT = 10
MOST_FOUND = 100

_ARGUMENTS = ("params", "arguments")


class Misasked(Exception):
    """A call of one of the three tools that cannot be followed; the sentence is for the model that made it."""


class Query(NamedTuple):
    """The query in a call of the search tool."""

    words: str
    limit: int


@dataclass(frozen=True, slots=True)
class CodeModeNames:
    """The names of the three tools of a server."""

    server: str

    @property
    def search(self) -> str:
        return f"{self.server}_search_tools"

    @property
    def schema(self) -> str:
        return f"{self.server}_get_tool_schema"

    @property
    def call(self) -> str:
        return f"{self.server}_call_tool"

    @property
    def every(self) -> frozenset[str]:
        return frozenset((self.search, self.schema, self.call))

    @property
    def hint(self) -> str:
        """The way to call a tool, in words for a client that called it by its own name."""
        return (
            f"Tools of this server are called through {self.call}, with the tool's name and its "
            f"arguments; {self.search} finds tools and {self.schema} shows their arguments."
        )


# --- calls ----------------------------------------------------------------------------------------------------


def unfold(envelope: Envelope, names: CodeModeNames) -> bytes:
    """The direct call that a call of ``names.call`` stands for, as bytes. Raises Misasked.

    ``params.name`` and ``params.arguments`` become those inside; everything else stays as it came.
    """
    asked = _asked(envelope, known=("name", "arguments"))
    name = _name(asked, names)
    if name == names.call:
        raise Misasked(f"{names.call} cannot call itself: pass the name of another tool.")
    arguments = asked.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise Misasked("arguments must be an object with the arguments of the tool.")
    edits: list[Edit] = [Replace(("params", "name"), _bytes(envelope.body, (*_ARGUMENTS, "name")))]
    if arguments is None:
        edits.append(Drop(_ARGUMENTS))
    else:
        edits.append(Replace(_ARGUMENTS, _bytes(envelope.body, (*_ARGUMENTS, "arguments"))))
    return edit(envelope.body, edits)


def asked_name(envelope: Envelope, names: CodeModeNames) -> str:
    """The tool that a call of ``names.schema`` asks about. Raises Misasked."""
    return _name(_asked(envelope, known=("name",)), names)


def asked_query(envelope: Envelope) -> Query:
    """Return the query of a call of ``names.search``. Raises Misasked."""
    asked = _asked(envelope, known=("query", "limit"))
    words, limit = asked.get("query"), asked.get("limit")
    if not isinstance(words, str):
        raise Misasked("query must be a text: the words to look for.")
    if limit is None:
        return Query(words, DEFAULT_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_FOUND:
        raise Misasked(f"limit must be a number from 1 to {MOST_FOUND}.")
    return Query(words, limit)


def _asked(envelope: Envelope, known: Sequence[str]) -> Mapping[str, Any]:
    """The arguments of a call of one of the three tools, of which only the ``known`` may be there."""
    params = parse(envelope.body).get("params")
    asked = params.get("arguments") if isinstance(params, dict) else None
    if asked is None:
        return {}
    if not isinstance(asked, dict):
        raise Misasked("arguments must be an object.")
    # Which of two an upstream would read is not known, and the one that was judged has to be the one that runs.
    if _stands_twice(envelope.body, ("params",)) or _stands_twice(envelope.body, _ARGUMENTS):
        raise Misasked("An argument is given twice.")
    strange = next((key for key in asked if key not in known), None)
    if strange is not None:
        raise Misasked(
            f"There is no argument {strange!r} here, only {' and '.join(known)}"
            + (": the arguments of the tool itself go into arguments." if "arguments" in known else ".")
        )
    return asked


def _stands_twice(body: bytes, path: tuple[str, ...]) -> bool:
    keys = [member.key for member in members(body, _span(body, path)[0])]
    return len(keys) > len(set(keys))


def _name(asked: Mapping[str, Any], names: CodeModeNames) -> str:
    name = asked.get("name")
    if not isinstance(name, str):
        raise Misasked(f"name must be the name of a tool, as {names.search} returns it.")
    return name


def _bytes(body: bytes, path: tuple[str, ...]) -> bytes:
    start, end = _span(body, path)
    return body[start:end]


def _span(body: bytes, path: tuple[str, ...]) -> tuple[int, int]:
    span = find(body, path)
    assert span is not None, "the value was just read from these bytes"
    return span


# --- answers --------------------------------------------------------------------------------------------------


def told(found: Sequence[SearchHit], total: int, names: CodeModeNames) -> tuple[str, dict[str, Any]]:
    """Return the answer of the search tool: as text, and as data that fits its output schema."""
    if not found:
        return "No tool was found. Try other words, or an empty query for all tools by name.", {
            "tools": [],
            "total": 0,
        }
    lines = [f"{each.name} ({each.score:g}): {each.line}".rstrip(" :") for each in found]
    more = f"\n{total - len(found)} more were found; ask for more with limit." if total > len(found) else ""
    text = "\n".join(lines) + more + f"\nArguments: {names.schema}. Call: {names.call}."
    tools = [
        {
            "name": each.name,
            **({"title": each.title} if each.title is not None else {}),
            "description": each.line,
            "score": each.score,
        }
        for each in found
    ]
    return text, {"tools": tools, "total": total}


def definitions(names: CodeModeNames) -> tuple[dict[str, Any], ...]:
    """The three tools as a client sees them in the list."""
    name = {"type": "string", "description": f"The tool's name, exactly as {names.search} gives it."}
    return (
        {
            "name": names.search,
            "title": "Search tools",
            "description": (
                f"Finds tools of {names.server} by words: in their names, descriptions and parameters. Read the "
                f"arguments of what it finds with {names.schema}, then call it with {names.call}."
            ),
            "inputSchema": _object(
                {
                    "query": {
                        "type": "string",
                        "description": "Words that say what the tool is to do; empty for all tools by name.",
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MOST_FOUND,
                        "default": DEFAULT_LIMIT,
                        "description": "Most tools in the answer.",
                    },
                },
                "query",
            ),
            "outputSchema": _FOUND,
            "annotations": _reading("Search tools"),
        },
        {
            "name": names.schema,
            "title": "Describe a tool",
            "description": f"Gives the whole definition of one tool of {names.server}, with its arguments.",
            "inputSchema": _object({"name": name}, "name"),
            "annotations": _reading("Describe a tool"),
        },
        {
            "name": names.call,
            "title": "Call a tool",
            "description": (
                f"Calls one tool of {names.server} and answers what it answers. {names.search} finds "
                f"tools, and {names.schema} shows their arguments."
            ),
            "inputSchema": _object(
                {
                    "name": name,
                    "arguments": {"type": "object", "description": "The arguments of that tool."},
                },
                "name",
            ),
            "annotations": {"title": "Call a tool"},
        },
    )


def _object(properties: dict[str, Any], required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": False,
    }


def _reading(title: str) -> dict[str, Any]:
    return {
        "title": title,
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


_FOUND = {
    "type": "object",
    "properties": {
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "title": {"type": "string"},
                    "description": {"type": "string"},
                    "score": {"type": "number"},
                },
                "required": ["name", "description", "score"],
            },
        },
        "total": {"type": "integer"},
    },
    "required": ["tools", "total"],
}
