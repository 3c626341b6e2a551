"""Arguments of a tool as words of a command line: ``name=value``, ``name:=JSON``, ``name=@path``. Pure."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from adapter.rules.files.tool_definitions import followed
from adapter.rules.text.unicode import shown
from adapter.wire.envelope import list_at, value_at

_MOST_SCHEMAS = 64
"""Schemas of one argument that are looked at: alternatives, and those in alternatives."""

_MOST_NAMES = 30
"""Names or choices that a sentence tells."""

_LONGEST_NAME = 100

_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class WrongArgument(Exception):
    """Words that the tool does not take; ``str(error)`` is one sentence for people."""


class ArgumentWord(NamedTuple):
    """One argument as it was written; ``kind`` tells what its value is."""

    name: str
    value: str
    kind: Literal["text", "json", "file"]


class NamedFile(NamedTuple):
    """A file that was named as the value of an argument."""

    path: str


def parse_word(text: str) -> ArgumentWord:
    """Read one word. Raises WrongArgument."""
    name, equals, value = text.partition("=")
    if not equals or not name.rstrip(":"):
        raise WrongArgument(f"{_short(text)} is no argument: write name=value, name:=JSON or name=@path.")
    if name.endswith(":"):
        return ArgumentWord(name[:-1], value, "json")
    if value.startswith("@@"):
        return ArgumentWord(name, value[1:], "text")
    return (
        ArgumentWord(name, value[1:], "file") if value.startswith("@") else ArgumentWord(name, value, "text")
    )


def arguments_of(tool: str, schema: Any, words: Sequence[ArgumentWord]) -> dict[str, Any]:
    """The arguments that the words mean to a tool with this input schema; a file is a NamedFile, or a list of them.

    Raises WrongArgument, which tells the names, types or choices that the tool has.
    """
    properties = properties_of(schema)
    is_open = bool(schema.get("additionalProperties", not properties)) if isinstance(schema, dict) else True
    found: dict[str, Any] = {}
    for word in words:
        if word.name not in properties and not is_open:
            takes = f"it takes {_listed(properties)}" if properties else "it takes no arguments"
            raise WrongArgument(f"{_short(tool)} has no argument {_short(word.name)}: {takes}.")
        found[word.name] = _joined(word.name, found, _value(word, schema, properties.get(word.name)))
    if missing := [name for name in required_of(schema) if name not in found]:
        raise WrongArgument(f"{_short(tool)} also needs {_listed(missing)}.")
    return found


def usage(schema: Any, marks_files: Sequence[str]) -> Iterator[str]:
    """How each argument is written: ``name=type``, in brackets where it may be left out.

    A file is one whose description has all of the words ``marks_files``.
    """
    required = set(required_of(schema))
    for name, each in properties_of(schema).items():
        if all(mark in _described(each) for mark in marks_files):
            takes = "@file"
        else:
            takes = "|".join(sorted(_types(schema, each) - {"null"})) or "value"
        yield f"{name}={takes}" if name in required else f"[{name}={takes}]"


def _described(schema: Any) -> str:
    """What is said of an argument, and of the items of its list."""
    said = value_at(schema, "description"), value_at(schema, "items", "description")
    return " ".join(text for text in said if isinstance(text, str))


def properties_of(schema: Any) -> Mapping[str, Any]:
    """The schemas of an object's members, by name; none where a schema is no such thing."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def required_of(schema: Any) -> list[str]:
    """The names of the members that an object needs."""
    return [name for name in list_at(schema, "required") if isinstance(name, str)]


def _joined(name: str, found: Mapping[str, Any], value: Any) -> Any:
    """The value of an argument with what was given before: a list of files grows, all else is given once."""
    if name not in found:
        return value
    before = found[name]
    if isinstance(value, list) and isinstance(before, list) and isinstance(value[-1:][0], NamedFile):
        return [*before, *value]
    raise WrongArgument(f"{_short(name)} is given twice. A list is written as JSON: {_short(name)}:='[…]'.")


def _value(word: ArgumentWord, root: Any, schema: Any) -> Any:
    types = _types(root, schema)
    if word.kind == "json":
        try:
            value = _json(word.value)
        except ValueError:
            raise WrongArgument(f"{_short(word.name)}:= takes JSON, not {_short(word.value)}.") from None
    elif word.kind == "file":
        if types and not types & {"string", "array"}:
            raise WrongArgument(f"{_short(word.name)} takes {' or '.join(sorted(types))}, not a file.")
        file = NamedFile(word.value)
        return [file] if "array" in types and "string" not in types else file
    else:
        value = _typed(word, types)
    _check_choice(word.name, value, root, schema)
    return value


def _typed(word: ArgumentWord, types: frozenset[str]) -> Any:
    """The value of a text: of the type that the schema has, a string where that is one of several and no other fits."""
    texts = not types or "string" in types
    exact = types - {"string", "null"} if texts else types
    if exact:
        lowered = word.value.lower()
        with contextlib.suppress(ValueError):
            value = _json(lowered if lowered in ("true", "false") else word.value)
            type_ = _TYPES[type(value)]
            if type_ in exact or (type_ == "integer" and "number" in exact):
                return value
    if texts:
        return word.value
    raise WrongArgument(f"{_short(word.name)} takes {' or '.join(sorted(types))}, not {_short(word.value)}.")


def _json(text: str) -> Any:
    """Raises ValueError, also for numbers that JSON does not have."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("too deep") from None


def _check_choice(name: str, value: Any, root: Any, schema: Any) -> None:
    _, schema = followed(root, (), schema)
    choices = schema.get("enum") if isinstance(schema, dict) else None
    if isinstance(choices, list) and choices and value not in choices:
        texts = [each if isinstance(each, str) else json.dumps(each) for each in choices[: _MOST_NAMES + 1]]
        raise WrongArgument(f"{_short(name)} is one of {_listed(texts)}.")


def _types(root: Any, schema: Any) -> frozenset[str]:
    """The JSON types that a schema allows; none where it does not say."""
    found: set[str] = set()
    pending = [schema]
    for _ in range(_MOST_SCHEMAS):
        if not pending:
            break
        _, each = followed(root, (), pending.pop())
        if not isinstance(each, dict):
            continue
        names = each["type"] if isinstance(each.get("type"), list) else [each.get("type")]
        found.update(name for name in names if isinstance(name, str) and name in _TYPES.values())
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(alternatives := each.get(key), list):
                pending += alternatives[:_MOST_SCHEMAS]
    return frozenset(found)


def _listed(names: Mapping[str, Any] | Sequence[str]) -> str:
    listed = ", ".join(_short(name) for name in islice(names, _MOST_NAMES))
    return f"{listed} …" if len(names) > _MOST_NAMES else listed


def _short(text: str) -> str:
    return shown(text, _LONGEST_NAME)
