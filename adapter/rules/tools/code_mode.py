"""Code mode: three tools in the place of all others, to search, to describe and to call. No code is run. Pure.

A call through the third tool is unfolded into the direct call that it stands for before anything judges it. Its
arguments, its ``_meta`` and all other params keep their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.rules.tools.definitions import own_tool
from adapter.rules.tools.search import SearchHit
from adapter.wire.envelope import Envelope, parse, value_at
from adapter.wire.spans import Drop, Edit, Replace, edit, find, members

DEFAULT_LIMIT = 10
MOST_FOUND = 100

_ARGUMENTS = ("params", "arguments")


class UnusableCall(Exception):
    """A call of one of the three tools that cannot be served; the sentence is for the model that made it."""


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
    def hint(self) -> str:
        """The way to call a tool, in words for a client that called it by its own name."""
        return (
            f"Tools of this server are called through {self.call}, with the tool's name and its "
            f"arguments; {self.search} finds tools and {self.schema} shows their arguments."
        )


# --- calls ----------------------------------------------------------------------------------------------------


def unfold(envelope: Envelope, names: CodeModeNames) -> bytes:
    """The direct call that a call of ``names.call`` stands for, as bytes. Raises UnusableCall.

    ``params.name`` and ``params.arguments`` become those of the inner call; everything else stays as it came.
    """
    arguments = _arguments(envelope, known=("name", "arguments"))
    name = _name(arguments, names)
    if name == names.call:
        raise UnusableCall(f"{names.call} cannot call itself: pass the name of another tool.")
    inner = arguments.get("arguments")
    if inner is not None and not isinstance(inner, dict):
        raise UnusableCall("arguments must be an object with the arguments of the tool.")
    edits: list[Edit] = [Replace(("params", "name"), _bytes(envelope.body, (*_ARGUMENTS, "name")))]
    if inner is None:
        edits.append(Drop(_ARGUMENTS))
    else:
        edits.append(Replace(_ARGUMENTS, _bytes(envelope.body, (*_ARGUMENTS, "arguments"))))
    return edit(envelope.body, edits)


def described_name(envelope: Envelope, names: CodeModeNames) -> str:
    """The tool that a call of ``names.schema`` asks about. Raises UnusableCall."""
    return _name(_arguments(envelope, known=("name",)), names)


def search_query(envelope: Envelope) -> Query:
    """The query of a call of ``names.search``. Raises UnusableCall."""
    arguments = _arguments(envelope, known=("query", "limit"))
    words, limit = arguments.get("query"), arguments.get("limit")
    if not isinstance(words, str):
        raise UnusableCall("query must be a text: the words to look for.")
    if limit is None:
        return Query(words, DEFAULT_LIMIT)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_FOUND:
        raise UnusableCall(f"limit must be a number from 1 to {MOST_FOUND}.")
    return Query(words, limit)


def _arguments(envelope: Envelope, known: Sequence[str]) -> Mapping[str, Any]:
    """The arguments of a call of one of the three tools, of which only the ``known`` may be there."""
    arguments = value_at(parse(envelope.body), "params", "arguments")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise UnusableCall("arguments must be an object.")
    # Upstreams differ in which of two they read, and the arguments that were judged have to be those that run.
    if _stands_twice(envelope.body, ("params",)) or _stands_twice(envelope.body, _ARGUMENTS):
        raise UnusableCall("An argument is given twice.")
    strange = next((key for key in arguments if key not in known), None)
    if strange is not None:
        raise UnusableCall(
            f"There is no argument {strange!r} here, only {' and '.join(known)}"
            + (": the arguments of the tool itself go into arguments." if "arguments" in known else ".")
        )
    return arguments


def _stands_twice(body: bytes, path: tuple[str, ...]) -> bool:
    keys = [member.key for member in members(body, _span(body, path)[0])]
    return len(keys) > len(set(keys))


def _name(arguments: Mapping[str, Any], names: CodeModeNames) -> str:
    name = arguments.get("name")
    if not isinstance(name, str):
        raise UnusableCall(f"name must be the name of a tool, as {names.search} returns it.")
    return name


def _bytes(body: bytes, path: tuple[str, ...]) -> bytes:
    start, end = _span(body, path)
    return body[start:end]


def _span(body: bytes, path: tuple[str, ...]) -> tuple[int, int]:
    span = find(body, path)
    assert span is not None, "the value was just read from these bytes"
    return span


# --- answers --------------------------------------------------------------------------------------------------


def search_answer(hits: Sequence[SearchHit], total: int, names: CodeModeNames) -> tuple[str, dict[str, Any]]:
    """The answer of the search tool: as text, and as data that fits its output schema."""
    if not hits:
        text = "No tool was found. Try other words, or an empty query for all tools by name."
        return text, {"tools": [], "total": 0}
    lines = [f"{each.name} ({each.score:g}): {each.line}".rstrip(" :") for each in hits]
    more = f"\n{total - len(hits)} more were found; ask for more with limit." if total > len(hits) else ""
    text = "\n".join(lines) + more + f"\nArguments: {names.schema}. Call: {names.call}."
    tools = [_hit_data(each) for each in hits]
    return text, {"tools": tools, "total": total}


def _hit_data(hit: SearchHit) -> dict[str, Any]:
    title = {} if hit.title is None else {"title": hit.title}
    return {"name": hit.name, **title, "description": hit.line, "score": hit.score}


def definitions(names: CodeModeNames) -> tuple[dict[str, Any], ...]:
    """The three tools as a client sees them in the list."""
    name = _text(f"The tool's name, exactly as {names.search} gives it.")
    query = _text("Words that say what the tool is to do; empty for all tools by name.")
    limit = {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_FOUND,
        "default": DEFAULT_LIMIT,
        "description": "Most tools in the answer.",
    }
    search = (
        f"Finds tools of {names.server} by words: in their names, descriptions and parameters. Read the "
        f"arguments of what it finds with {names.schema}, then call it with {names.call}."
    )
    describe = f"Gives the whole definition of one tool of {names.server}, with its arguments."
    call = (
        f"Calls one tool of {names.server} and answers what it answers. {names.search} finds tools, and "
        f"{names.schema} shows their arguments."
    )
    arguments = {"type": "object", "description": "The arguments of that tool."}
    return (
        {
            **own_tool(names.search, "Search tools", search, {"query": query, "limit": limit}),
            "outputSchema": _FOUND,
        },
        own_tool(names.schema, "Describe a tool", describe, {"name": name}),
        own_tool(names.call, "Call a tool", call, {"name": name, "arguments": arguments}, reads=False),
    )


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


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
