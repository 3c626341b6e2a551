"""The member of structured content in which a tool's artifacts stand, and output schemas that allow it. Pure.

Some hosts show their model nothing but structured content where a result has some, and most clients check that by the
tool's output schema. So whatever that accepts must be accepted with the member, too, and without it as before. Where
results may be shortened, a schema also allows what is left of them.

Artifacts as results of tools tell of them: in metadata, in structured content, and as content blocks. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.wire.envelope import dump, parse
from adapter.wire.spans import Insert, edit

MEMBERS = ("artifacts", "adapter_artifacts")
"""The names of the member: the first that the tool does not use itself."""

_TEXT = {"type": "string"}
_FILES = {
    "type": "array",
    "description": "Files that the tool wrote, kept by the adapter.",
    "items": {
        "type": "object",
        "properties": {
            "uri": _TEXT,
            "name": _TEXT,
            "mimeType": _TEXT,
            "size": {"type": "integer"},
            "sha256": _TEXT,
            "download_url": _TEXT,
        },
        "required": ["uri", "name", "mimeType", "size", "sha256"],
    },
}

_DEEPEST = 100
"""Levels of a schema that is edited; tools with deeper ones get no member."""

_OF_DOCUMENT = ("$schema", "$id")
_WORDS = ("$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
_OF_MEMBERS = (
    "type",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "$defs",
    "definitions",
)
_HARMLESS = frozenset({*_OF_DOCUMENT, *_WORDS, *_OF_MEMBERS})
"""Keywords beside which one more property changes nothing but what that property may be."""
_REFERENCES = ("$ref", "$dynamicRef")
_DATA = ("const", "enum", "default", "examples")
# Their members have names of the author's, behind which schemas stand.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def free_members(schema: object) -> tuple[str, ...]:
    """The names that the member may have by a tool's output schema, None for a tool without; none where structured
    content is no object.
    """
    if schema is None:
        return MEMBERS
    if not isinstance(schema, dict) or not _describes_objects(schema):
        return ()
    used: set[str] = set()
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                used.update(name for name in MEMBERS if name in value)
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif value in MEMBERS:
                used.add(value)
        level = below
    return () if level else tuple(name for name in MEMBERS if name not in used)


def allowing(text: bytes, schema: dict[str, Any], names: Sequence[str]) -> bytes:
    """An output schema (JSON, and its value) that says what the first of these free names holds.

    It accepts what it did, and that with artifacts under any of the names.
    """
    if _is_plain(schema) and all(target.startswith("#/") for _, _, target in _references(schema)):
        closed = schema.get("additionalProperties") in (False, {"not": {}})
        # An open schema allows such a member of the tool's own, which may be anything.
        member = _FILES if closed else {"description": _FILES["description"], "anyOf": [_FILES, {}]}
        return edit(text, [Insert(("properties", names[0]), dump(member))])
    # Nothing can be added to it, so it becomes one of several, and these the document that it was.
    own = schema.get("$id")
    # Written as a whole: an edit for each of many references takes time by how deep they are, too.
    moved = parse(text)
    for holder, key, target in list(_references(moved)):
        holder[key] = _moved(target, own)
    either = [dump({key: item for key, item in moved.items() if key not in _OF_DOCUMENT})]
    for name in names:
        either.append(dump({"type": "object", "properties": {name: _FILES}, "required": [name]}))
    head = {key: schema[key] for key in _OF_DOCUMENT if key in schema}
    if schema.get("type") == "object":
        head["type"] = "object"
    return edit(dump(head), [Insert(("anyOf",), b"[%b]" % b",".join(either))])


def _describes_objects(schema: Mapping[str, Any]) -> bool:
    stated = schema.get("type", "object")
    return "object" in stated if isinstance(stated, list) else bool(stated == "object")


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Tell whether the schema accepts one more property as soon as that stands in its ``properties``."""
    return (
        all(keyword in _HARMLESS or keyword.startswith("x-") for keyword in schema)
        and isinstance(schema.get("properties", {}), dict)
        and schema.get("additionalProperties", True) in (True, False, {}, {"not": {}})
    )


def _references(schema: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """The references that count from the schema's beginning, each with the object and the member that hold it."""
    todo: list[tuple[Any, bool]] = [(schema, False)]
    while todo:
        value, named = todo.pop()
        if isinstance(value, list):
            todo += [(item, False) for item in value if isinstance(item, dict | list)]
        if not isinstance(value, dict):
            continue
        own = value.get("$id")
        if value is not schema and not named and isinstance(own, str) and not own.startswith("#"):
            # A document of its own.
            continue
        for key, item in value.items():
            if not named and key in _REFERENCES and isinstance(item, str):
                yield value, key, item
            elif isinstance(item, dict | list) and (named or key not in (*_DATA, *_REFERENCES)):
                todo.append((item, not named and key in _NAMED))


def _moved(target: str, own: object) -> str:
    """A reference within the schema when that is the first of ``anyOf``; to another place it stays. ``own`` is the
    address of the schema, if it has one.
    """
    within = target.removeprefix(own) if isinstance(own, str) else target
    return f"#/anyOf/0{within[1:]}" if within in ("", "#") or within.startswith("#/") else target


# --- schemas of results that may be shortened ----------------------------------------------------------------------

DEEPEST = 64
"""Levels of a schema that are widened; a value that is shortened below them does not fit."""

# What a shorter list, or a text that was cut, may not meet any more.
_UNMET = frozenset(
    (
        *("minItems", "contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems"),
        *("minLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema"),
    )
)
_ONE = frozenset(
    (
        *("items", "additionalItems", "additionalProperties", "unevaluatedProperties"),
        *("then", "else"),
    )
)
_SEVERAL = frozenset(("allOf", "anyOf", "prefixItems", "items"))
_SCHEMAS_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def shortenable(schema: Mapping[str, Any]) -> Any:
    """A schema that allows what this one does, and whatever is left of it, with the artifact that has the rest."""
    if b"/oneOf/" in dump(schema):
        # What refers into a place that is no longer there would make the schema one that nobody can read.
        return schema
    wide = widened(schema)
    names = free_members(wide)
    return parse(allowing(dump(wide), wide, names)) if names else wide


def widened(schema: Any, depth: int = 0) -> Any:
    """A schema that allows whatever this one does, with lists that end earlier and texts that are cut.

    What stands below ``not`` and ``if`` stays: there a wider schema would allow less.
    """
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return schema
    wide: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _UNMET:
            continue
        if key in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            wide[key] = {name: widened(each, depth + 1) for name, each in value.items()}
        elif key in _SEVERAL and isinstance(value, list):
            wide[key] = [widened(each, depth + 1) for each in value]
        else:
            wide[key] = widened(value, depth + 1) if key in _ONE else value
    branches = wide.pop("oneOf", None)
    if branches is not None:
        # Branches that were told apart by what is dropped may all fit: any of them will do.
        any_of = {
            "anyOf": [widened(each, depth + 1) for each in branches]
            if isinstance(branches, list)
            else branches
        }
        wide["allOf"] = [*wide["allOf"], any_of] if isinstance(wide.get("allOf"), list) else [any_of]
    return wide


class ShownFile(NamedTuple):
    """The file of an artifact as a result tells of it. ``size`` is in bytes, ``sha256`` in hex."""

    filename: str
    media_type: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An artifact as a result shows it. ``expires_at`` is in the form for clients.

    ``download_url`` is given when downloads are on. ``raw`` is given when the artifact is to be embedded: a text, or
    bytes that are no text.
    """

    uri: str
    id: str
    file: ShownFile
    expires_at: str | float | None
    exposed: bool
    download_url: str | None = None
    raw: str | bytes | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """The entry of ``_meta.artifact``."""
        link = {} if self.download_url is None else {"download_url": self.download_url}
        return {
            "artifact_uri": self.uri,
            "artifact_id": self.id,
            "filename": self.file.filename,
            "mime_type": self.file.media_type,
            "size_bytes": self.file.size,
            "sha256": self.file.sha256,
            "expires_at": self.expires_at,
            "expose_as_resource": self.exposed,
            **link,
        }

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the list in structured content."""
        link = {} if self.download_url is None else {"download_url": self.download_url}
        return {
            "uri": self.uri,
            "name": self.file.filename,
            "mimeType": self.file.media_type,
            "size": self.file.size,
            "sha256": self.file.sha256,
            **link,
        }

    @property
    def reference(self) -> dict[str, Any]:
        """The entry, which with a link is a file reference of OpenAI's too ("Apps SDK", "File handling", 2026-10)."""
        if self.download_url is None:
            return self.entry
        known = {"file_id": self.id, "mime_type": self.file.media_type, "file_name": self.file.filename}
        return self.entry | known

    def blocks(self) -> Iterator[dict[str, Any]]:
        """The content blocks that are added for it, in their order."""
        yield {
            "type": "resource_link",
            "uri": self.uri,
            "name": self.file.filename,
            "mimeType": self.file.media_type,
            "size": self.file.size,
        }
        if self.download_url is not None:
            url = self.download_url
            yield {"type": "text", "text": f"Artifact download URL: {url}\n[Download artifact]({url})"}
        if self.raw is not None:
            resource: dict[str, Any] = {"uri": self.uri, "mimeType": self.file.media_type}
            if isinstance(self.raw, str):
                resource["text"] = self.raw
            else:
                resource["blob"] = base64.b64encode(self.raw).decode("ascii")
            yield {"type": "resource", "resource": resource}
