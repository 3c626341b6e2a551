"""A MongoDB command as a template: a JSON document whose values are replaced, never its structure. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NoReturn

from adapter.rules.statements.templates import (
    HOLE,
    Bound,
    EnvironmentFailed,
    Part,
    Placeholder,
    Sources,
    StatementRefused,
    SubstitutionFailed,
    Template,
    has_hole,
    named,
)

Path = tuple[str | int, ...]

# A string that does not end is read to the end of the text, once: it is refused as JSON in any case.
_STRING_OR_HOLE = re.compile(rf'"(?:[^"\\]++|\\.)*+"?+|([{HOLE}])', re.DOTALL)

_CODE: Final = frozenset(("$where", "$function", "$accumulator", "$code"))
"""Members with JavaScript for the server in or below them, wherever they stand."""

_CODE_OF_COMMANDS: Final = frozenset(("map", "reduce", "finalize", "eval", "$eval"))
"""Members of a command itself that are JavaScript."""

_NAMES: Final = frozenset(("from", "into", "coll", "db", "collection", "$out", "$merge", "$unionWith"))
"""Members of a pipeline that name a collection or a database."""

_FIELDS: Final = frozenset(("localField", "foreignField", "connectFromField", "connectToField", "$getField"))
"""Members of a pipeline that name a field: a caller that chose it could read any."""

_NAMES_OF_COMMANDS: Final = frozenset(
    (("distinct", "key"), ("renameCollection", "to"), ("create", "viewOn"), ("mapReduce", "out"))
)
"""Commands and those of their members that name a field or a collection."""

_READ = "find aggregate count distinct listCollections listIndexes listDatabases ping collStats dbStats"
_READING: Final = frozenset(_READ.split())


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value with placeholders. ``bare`` are those that stand outside quotes: an environment variable is then
    read as JSON. ``is_data`` tells that a text with a dollar sign in front is no reference to a field there.
    """

    parts: tuple[Part, ...]
    bare: bool
    is_data: bool

    def value(self, sources: Sources) -> object:
        """Alone in its leaf an input keeps its type. Raises SubstitutionFailed for a text that would be read as a
        field of the document or a variable of the server.
        """
        if len(self.parts) > 1:
            value: object = sources.whole_text(self.parts)
        else:
            (placeholder,) = named(self.parts)
            value = sources.given(placeholder)
            if self.bare and placeholder.space == "env":
                value = _scalar(placeholder.name, str(value))
            if isinstance(value, dict | list):
                return self._structure(placeholder.name, value)
        if isinstance(value, str) and value.startswith("$") and not self.is_data:
            for placeholder in named(self.parts):
                if placeholder.space == "inputs":
                    raise SubstitutionFailed(
                        placeholder.name, "begins with a $, which refers to a field there"
                    )
        return value

    def _structure(self, name: str, value: object) -> object:
        """An array or object as it is, where it is data and cannot be read as anything else."""
        if not self.is_data:
            raise SubstitutionFailed(name, "must be a single value at this place")
        for key in _keys(value):
            if key.startswith("$") or "." in key or "\0" in key:
                raise SubstitutionFailed(name, "has a member name with $, a dot or a zero byte")
        return value


def _keys(value: object) -> Iterator[str]:
    """The names of all members within a value."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            yield from each
            stack += each.values()
        elif isinstance(each, list):
            stack += each


def _scalar(name: str, text: str) -> object:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        value = None
    if not isinstance(value, str | int | float):
        raise EnvironmentFailed(name, "must be a number or a boolean outside quotes")
    return value


@dataclass(frozen=True, slots=True)
class MongoCommand:
    """``document`` is ``{"database", "command"}``, its values as templates where they have placeholders."""

    document: Mapping[str, Any]
    placeholders: tuple[Placeholder, ...]
    reads: bool

    def bound(self, text: str, sources: Sources) -> Bound:
        """The document with its members in the order of the template, and the values of the placeholders."""
        values = tuple(sources.given(placeholder) for placeholder in self.placeholders)
        return Bound(text, values, document=_filled(self.document, sources))


@dataclass(frozen=True, slots=True)
class Key:
    """The name of a member with a placeholder in it."""

    parts: tuple[Part, ...]


def _filled(node: object, sources: Sources) -> Any:
    match node:
        case Leaf():
            return node.value(sources)
        case dict():
            return {
                sources.text(key.parts) if isinstance(key, Key) else key: _filled(member, sources)
                for key, member in node.items()
            }
        case list():
            return [_filled(item, sources) for item in node]
    return node


def compile_mongo(template: Template) -> MongoCommand:
    """Raises StatementRefused where the template is not ``{"database", "command"}`` in JSON, and for a placeholder
    in code, in a name without an enum of names, and in a member's name.
    """
    document = _document(template)
    command = next(iter(document["command"]))
    if has_hole(command):
        raise StatementRefused("the command must not be a placeholder")
    seen: list[str] = []
    compiled = _compiled(document, (), template, seen, command)
    if sorted(seen) != sorted(re.findall(f"[{HOLE}]", template.shape)):
        raise StatementRefused("the statement contains a private-use character")
    text = json.dumps(document)
    writes = '"$out"' in text or '"$merge"' in text
    return MongoCommand(compiled, template.placeholders, command in _READING and not writes)


def _document(template: Template) -> dict[str, Any]:
    # A placeholder outside quotes is quoted, and marked by a second of the same.
    quoted = _STRING_OR_HOLE.sub(
        lambda found: f'"{found[1]}{found[1]}"' if found[1] else found[0], template.shape
    )
    try:
        document = json.loads(quoted, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except StatementRefused:
        raise
    except (ValueError, RecursionError):
        raise StatementRefused("the statement is not JSON") from None
    if not isinstance(document, dict) or not set(document) <= {"database", "command"}:
        raise StatementRefused('a MongoDB statement must be {"database": …, "command": {…}}')
    if not isinstance(document.get("command"), dict) or not document["command"]:
        raise StatementRefused(
            'the "command" of a MongoDB statement must be an object with at least one member'
        )
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise StatementRefused("a member occurs twice in an object of the statement")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise StatementRefused(f"{name} is not JSON")


def _compiled(node: Any, path: Path, template: Template, seen: list[str], command: str) -> Any:
    """``seen`` gathers the holes that were met."""
    if isinstance(node, dict):
        return {
            _key(key, template, seen): _compiled(member, (*path, key), template, seen, command)
            for key, member in node.items()
        }
    if isinstance(node, list):
        return [_compiled(item, (*path, index), template, seen, command) for index, item in enumerate(node)]
    if not isinstance(node, str) or not has_hole(node):
        return node
    bare = len(node) == 2 and node[0] == node[1] and template.shape.count(node[0]) == 1
    text = node[0] if bare else node
    seen.extend(re.findall(f"[{HOLE}]", text))
    parts = template.parts(text)
    _refuse_in_code_and_names(parts, path, command)
    _refuse_structures(parts, is_data=_is_data(path))
    return Leaf(parts, bare, _is_data(path))


def _key(key: str, template: Template, seen: list[str]) -> str | Key:
    if not has_hole(key):
        return key
    seen.extend(re.findall(f"[{HOLE}]", key))
    parts = template.parts(key)
    for placeholder in named(parts):
        if not placeholder.ident:
            raise StatementRefused(f"{placeholder.source} stands in a member's name: {_AS_A_NAME}")
    return Key(parts)


_AS_A_NAME = "write {{ inputs.x | ident }} and give the input an enum"


def _refuse_in_code_and_names(parts: tuple[Part, ...], path: Path, command: str) -> None:
    is_code = not _CODE.isdisjoint(path) or not _CODE_OF_COMMANDS.isdisjoint(path[1:2])
    is_name = _is_name(path, command)
    for placeholder in named(parts):
        if is_code:
            raise StatementRefused(f"{placeholder.source} is inside code that the server runs")
        if is_name and placeholder.space == "inputs" and not placeholder.ident:
            raise StatementRefused(f"{placeholder.source} is used as a name: {_AS_A_NAME}")


def _is_name(path: Path, command: str) -> bool:
    """Tell whether a text at this place names a database, a collection or a field."""
    if path in (("database",), ("command", command)) or (command, *path[1:]) in _NAMES_OF_COMMANDS:
        return True
    if _is_data(path):
        return False
    return path[-1] in _NAMES or path[-1] in _FIELDS or path[-2:] == ("$getField", "field")


def _refuse_structures(parts: tuple[Part, ...], *, is_data: bool) -> None:
    for placeholder in named(parts):
        declared = placeholder.declared
        if declared is None or declared.type not in ("array", "object"):
            continue
        if len(parts) > 1:
            raise StatementRefused(
                f"{placeholder.source} is an {declared.type}, which cannot be part of a text"
            )
        if not is_data:
            raise StatementRefused(
                f"{placeholder.source} is an {declared.type}, and would become part of the command: use "
                "it in a filter, a query, a document or an operand of an update operator"
            )


def _is_data(path: Path) -> bool:
    """Tell whether a text at this place is a text even when it begins with a dollar sign.

    Where nobody can tell, it may be an expression, in which ``$name`` is the field of a document.
    """
    if path[-1] == "$literal":
        return True
    if "$expr" in path:
        return False
    match path[1:]:
        case ("filter" | "query" | "documents", *_):
            return True
        case ("updates" | "deletes", int(), "q", *_):
            return True
        case ("updates", int(), "u", below, *_) | ("update", below, *_):
            # An update may be a pipeline, too.
            return isinstance(below, str)
        case ("pipeline", *below):
            return any(
                (isinstance(outer, int) and inner == "$match") or (outer, inner) == ("$geoNear", "query")
                for outer, inner in pairwise(below)
            )
    return False
