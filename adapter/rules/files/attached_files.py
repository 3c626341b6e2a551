"""Files of a conversation that a host attaches to calls: how tools ask for them, and what a call then holds. Pure.

Source of the rules: OpenAI, "Plugins reference", "Define file inputs" (developers.openai.com/plugins/reference, as of
2026-10). ``_meta["openai/fileParams"]`` of a tool lists top-level arguments. Each is an object with ``download_url``
and ``file_id``, maybe ``mime_type`` and ``file_name``, or a list of such objects. The host fills them in.

It says nothing of ``anyOf``. The part of that host which is published (openai/codex, ``codex_apps/file_params.rs``,
2026-07) looks for the object in ``anyOf`` and local references too, but finds a list only at the top of a schema. So
alternatives stand within a list, and not around it where that can be helped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

from adapter.rules.calls.arguments import ANNOTATION, ArgumentValue, replaced, steps, values
from adapter.rules.files.tool_definitions import SchemaPath, continued, followed, takes
from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Drop, Edit, Insert, edit, find

FILE_PARAMS = "openai/fileParams"

LONGEST_URL = 8192
"""Characters of a URL: signed ones of stores of files have up to a few thousand."""

LONGEST_TEXT = 1024
"""Characters of the other members."""

_OF_ARGUMENT = "A file of the conversation can be passed directly, without an upload."

_TEXT = {"type": "string"}
_FILE = {
    "type": "object",
    "properties": {"download_url": _TEXT, "file_id": _TEXT, "mime_type": _TEXT, "file_name": _TEXT},
    "required": ["download_url", "file_id"],
    "additionalProperties": False,
}
_OUTSIDE = ("title", "description", "default")
"""Members of a schema that stay beside its alternatives."""

_ARGUMENTS = ("params", "arguments")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FileParameter(NamedTuple):
    """The top-level argument in which a host puts the files for an ``argument`` of a tool, which may be nested.

    ``names`` lead to that argument. ``list_at`` is the place of the one among them that is a list of objects. A call
    without the ``mark`` in it holds no file for it.
    """

    argument: str
    name: str
    names: tuple[str, ...]
    mark: bytes
    list_at: int | None = None

    @property
    def lifted(self) -> bool:
        """Tell whether it is another argument than that of the tool."""
        return len(self.names) > 1


def parameter_of(argument: str) -> FileParameter | None:
    """The parameter for a dotted path; None where a nested one goes through several lists, or has no plain name."""
    parts = argument.split(".")
    names = tuple(step.name for step in steps(argument))
    if len(names) == 1:
        return FileParameter(argument, names[0], names, b"download_url")
    name = "_".join(names)
    lists = [place for place, part in enumerate(parts) if part.endswith("[]")]
    if _PLAIN_NAME.fullmatch(name) is None or len(lists) > 1 or argument.count("[]") > 1:
        return None
    inner = bool(lists) and lists[0] < len(parts) - 1
    return FileParameter(argument, name, names, name.encode(), lists[0] if inner else None)


# --- definitions ----------------------------------------------------------------------------------------------


class StaysHandle(Exception):
    """An argument in which no host puts files; ``str(error)`` continues the name of it."""


def declared(definition: bytes, parameter: FileParameter) -> bytes:
    """The definition, which already accepts handles, with the parameter. Raises StaysHandle, BadJson."""
    value = parse(definition)
    root = value.get("inputSchema")
    holders, schema = _way(root, parameter)
    place: SchemaPath = (*holders[0][0], "properties", parameter.name)
    if parameter.lifted and parameter.name in holders[0][1]["properties"]:
        raise StaysHandle(f"cannot be lifted: the tool has an argument {parameter.name} of its own")
    if not parameter.lifted and isinstance(schema, dict) and ANNOTATION in schema:
        raise StaysHandle("is mirrored in a header, which cannot hold a file")
    edits: list[Edit] = [Insert(place, dump(_accepting(root, schema, several=parameter.list_at is not None)))]
    if parameter.lifted:
        edits += _made_optional(holders, parameter)
    meta = value.get("_meta")
    if not isinstance(meta, dict):
        edits.append(Insert(("_meta",), dump({FILE_PARAMS: [parameter.name]})))
    else:
        known = meta.get(FILE_PARAMS)
        others = [name for name in known if name != parameter.name] if isinstance(known, list) else []
        edits.append(Insert(("_meta", FILE_PARAMS), dump([*others, parameter.name])))
    try:
        return edit(definition, edits)
    except ValueError:
        raise StaysHandle("has a schema that refers to itself") from None


_Holder = tuple[SchemaPath, dict[str, Any]]
"""A schema of an object on the way to an argument, and its place in the definition."""


def _way(root: Any, parameter: FileParameter) -> tuple[list[_Holder], Any]:
    """The schemas of the objects that hold each name, and that of the argument. Raises StaysHandle."""
    holders: list[_Holder] = []
    place, schema = followed(root, ("inputSchema",), root)
    in_list = False
    for number, name in enumerate(parameter.names):
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or name not in properties:
            raise StaysHandle("is not in the tool's schema")
        if in_list and len(properties) > 1:
            raise StaysHandle("stands in a list of objects with other members")
        holders.append((place, schema))
        schema, place = properties[name], (*place, "properties", name)
        if number == len(parameter.names) - 1:
            break
        place, schema = followed(root, place, schema)
        is_list = isinstance(schema, dict) and isinstance(schema.get("items"), dict)
        if is_list != (number == parameter.list_at):
            raise StaysHandle(f"needs {name}[] in its path" if is_list else f"has no list at {name}[]")
        if is_list:
            place, schema = followed(root, (*place, "items"), schema["items"])
            in_list = True
    return holders, schema


def _accepting(root: Any, schema: Any, *, several: bool) -> dict[str, Any]:
    """A schema of handles as one that accepts files too; with ``several`` a list of them."""
    found = followed(root, (), schema)[1]
    found = found if isinstance(found, dict) else {}
    outside = {key: found[key] for key in _OUTSIDE if key in found}
    outside["description"] = continued(found.get("description"), _OF_ARGUMENT)
    inside = {key: item for key, item in found.items() if key not in _OUTSIDE}
    return {**outside, **({"type": "array", "items": _either(inside)} if several else _either(inside))}


def _either(schema: dict[str, Any], levels: int = 4) -> dict[str, Any]:
    """A schema that accepts a file where this one accepts a text, in at most so many lists within each other."""
    if _is_list(schema):
        items = schema.get("items")
        inner = items if isinstance(items, dict) else _TEXT
        return {**schema, "items": _either(inner, levels - 1)} if levels else schema
    branches = schema.get("anyOf")
    if isinstance(branches, list) and "type" not in schema:
        loose = [
            _either(each, levels - 1) if levels and isinstance(each, dict) and _is_list(each) else each
            for each in branches
        ]
        return {**schema, "anyOf": [_FILE, *loose]}
    return {"anyOf": [_FILE, schema or _TEXT]}


def _is_list(schema: dict[str, Any]) -> bool:
    return takes(schema, "array") and not takes(schema, "string")


def _made_optional(holders: list[_Holder], parameter: FileParameter) -> list[Edit]:
    """The edits after which a call may leave out what is lifted, and objects in which nothing else is required."""
    edits: list[Edit] = []
    last = len(holders) - 1 if parameter.list_at is None else parameter.list_at
    for number in range(last, -1, -1):
        place, schema = holders[number]
        required = schema.get("required")
        if not isinstance(required, list) or parameter.names[number] not in required:
            break
        rest = [name for name in required if name != parameter.names[number]]
        edits.append(Insert((*place, "required"), dump(rest)) if rest else Drop((*place, "required")))
        if rest:
            break
    return edits


# --- calls ----------------------------------------------------------------------------------------------------


class NotAttached(Exception):
    """A value in the place of a file that is none; ``str(error)`` is a sentence for the model."""


class AttachedFile(NamedTuple):
    """A file that a host has attached. ``id`` is the host's own; ``name`` is the id where the host gives no name."""

    url: str
    id: str
    name: str
    media_type: str | None


def attached_values(message: bytes, parameter: FileParameter) -> list[ArgumentValue]:
    """The values of the parameter in a call: handles, and what stands there in the form of files."""
    return values(message, parameter.name if parameter.lifted else parameter.argument)


def attached_file(found: ArgumentValue, parameter: FileParameter) -> AttachedFile | None:
    """The file that a value is, None for a text. Raises NotAttached."""
    if isinstance(found.value, str):
        return None
    value = parse(found.value)
    members = value if isinstance(value, dict) else {}
    url, file_id = members.get("download_url"), members.get("file_id")
    name, media_type = members.get("file_name"), members.get("mime_type")
    if not _is_text(url, LONGEST_URL) or not _is_text(file_id, LONGEST_TEXT):
        raise NotAttached(
            f"{parameter.name} must be a file of the conversation, as an object whose download_url and file_id are "
            f"text of at most {LONGEST_URL} and {LONGEST_TEXT} characters, or the handle of an uploaded file."
        )
    for key, text in (("file_name", name), ("mime_type", media_type)):
        if text is not None and not _is_text(text, LONGEST_TEXT):
            raise NotAttached(f"{key} of {parameter.name} must be text of at most {LONGEST_TEXT} characters.")
    return AttachedFile(url, file_id, name or file_id, media_type or None)


def _is_text(value: object, longest: int) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= longest


def with_handles(
    message: bytes, parameter: FileParameter, found: Sequence[ArgumentValue], handles: Sequence[str]
) -> bytes:
    """The call with a handle for each value that was found, in the tool's own argument. Raises NotAttached."""
    if not parameter.lifted:
        return replaced(message, zip(found, handles, strict=True))
    own = (*_ARGUMENTS, parameter.name)
    span = find(message, own)
    if span is None or not found:
        return edit(message, [Drop(own)])
    *way, last = parameter.names
    if parameter.list_at is None:
        value: Any = list(handles) if message.startswith(b"[", span[0]) else handles[0]
    else:
        *way, last = parameter.names[: parameter.list_at + 1]
        value = [_nested(parameter.names[parameter.list_at + 1 :], handle) for handle in handles]
    for depth in range(len(way)):
        holder = find(message, (*_ARGUMENTS, *way[: depth + 1]))
        if holder is not None and not message.startswith(b"{", holder[0]):
            raise NotAttached(f"{'.'.join(way[: depth + 1])} must be an object, or left out.")
    target = (*_ARGUMENTS, *way, last)
    there = find(message, target)
    if there is not None and message[slice(*there)] != b"null":
        raise NotAttached(f"Give the file as {parameter.name} or as {parameter.argument}, not as both.")
    return edit(message, [Drop(own), Insert(target, dump(value))])


def _nested(names: Sequence[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value
