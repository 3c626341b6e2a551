"""Arguments that take files, found by the adapter's words in a definition as a client sees it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from adapter.rules.files.tool_definitions import SchemaPath, followed

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
