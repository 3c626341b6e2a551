"""The definition of a tool whose files go through the adapter: its words on that, the handles it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from adapter.rules.calls.arguments import steps
from adapter.rules.files.structured_artifacts import allowing, free_members
from adapter.wire.envelope import dump, parse
from adapter.wire.signed_urls import upload_handle
from adapter.wire.spans import Drop, Edit, Insert, edit, find

# What a schema may ask of a text that no handle can promise; formats and lengths are looked at.
_UNMET = ("pattern", "enum", "const", "contentEncoding", "contentMediaType", "contentSchema")
_URI_FORMATS = ("uri", "uri-reference", "iri", "iri-reference")
_LONGEST_HANDLE = 1024
_MOST_REFERENCES = 16

_UPLOAD_FIRST = (
    "To give it a local file, first upload the file to the URL from {helper}, then pass "
    "the {scheme} handle as {argument}."
)
# Earlier versions pinned definitions with these words in them. The words of today may change, these may not.
_PINNED_WORDS = (
    "To give it a local file, first upload the file to the URL from {helper}, then pass "
    "the {scheme} handle as {argument}.",
    "To give it a local file, upload that first to the URL from {helper}, and pass the "
    "{scheme} handle as {argument}.",
)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The way in which files reach a tool or leave it.

    ``argument`` is the dotted path of the argument that takes files. ``helper`` is the tool that hands out upload
    URLs. Handles begin with one of the schemes. ``edits``: the tool changes files that it takes. ``upload_first`` is
    the sentence on uploads.
    """

    kind: Literal["consumer", "producer", "both"]
    argument: str | None = None
    helper: str = ""
    artifact_scheme: str = "artifact://"
    upload_scheme: str = "upload://"
    edits: bool = False
    upload_first: str = _UPLOAD_FIRST

    @property
    def sentences(self) -> str:
        """The sentences that are added to the tool's description."""
        said = []
        if self.kind != "producer" and self.argument is not None:
            said.append(
                self.upload_first.format(
                    helper=self.helper, scheme=self.upload_scheme, argument=self.argument
                )
            )
        if self.edits:
            said.append(
                f"It changes a copy of the file. The copy comes back as a new {self.artifact_scheme} URI; pass that "
                "one for the next change."
            )
        if self.kind != "consumer":
            said.append(f"A file it produces comes back as an {self.artifact_scheme} URI.")
        return " ".join(said)

    @property
    def of_argument(self) -> str:
        """The sentence that is added to the argument's description."""
        return f"Takes an {self.upload_scheme} handle from {self.helper}, or an {self.artifact_scheme} URI."


def wrapped(definition: bytes, rule: Wrapped, *, structured: bool = False) -> tuple[bytes, frozenset[str]]:
    """The definition with the rule's sentences and a schema that accepts handles, and its members that changed.

    ``structured``: its output schema also accepts structured content with artifacts. Raises BadJson.
    """
    value = parse(definition)
    if not isinstance(value, dict):
        return definition, frozenset()
    edits: list[Edit] = []
    changed = set()
    if rule.sentences:
        edits.append(Insert(("description",), dump(continued(value.get("description"), rule.sentences))))
        changed.add("description")
    if rule.kind != "producer" and rule.argument is not None:
        found = _schema_of(value.get("inputSchema"), rule.argument)
        if found is not None:
            edits += _accepting(*found, rule)
            changed.add("inputSchema")
    promised = value.get("outputSchema")
    names = free_members(promised) if structured else ()
    place = find(definition, ("outputSchema",)) if names else None
    if place is not None and isinstance(promised, dict):
        edits.append(Insert(("outputSchema",), allowing(definition[slice(*place)], promised, names)))
        changed.add("outputSchema")
    return edit(definition, edits), frozenset(changed)


def once_pinned(definition: bytes, rule: Wrapped) -> Iterator[bytes]:
    """The definition as earlier versions pinned it: with the sentences that the adapter added then.

    Raises BadJson.
    """
    for words in _PINNED_WORDS:
        yield wrapped(definition, replace(rule, upload_first=words, edits=False))[0]


SchemaPath = tuple[str | int, ...]


def _schema_of(root: Any, argument: str) -> tuple[SchemaPath, dict[str, Any]] | None:
    """The schema of the texts that an argument holds, and its place in the definition; None if it has none."""
    place: SchemaPath = ("inputSchema",)
    schema = root
    for step in steps(argument):
        place, schema = followed(root, place, schema)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or step.name not in properties:
            return None
        place, schema = (*place, "properties", step.name), properties[step.name]
        for _ in range(step.levels):
            place, schema = followed(root, place, schema)
            if not isinstance(schema, dict) or not isinstance(schema.get("items"), dict):
                break
            place, schema = (*place, "items"), schema["items"]
    place, schema = followed(root, place, schema)
    return (place, schema) if isinstance(schema, dict) else None


def followed(root: Any, place: SchemaPath, schema: Any) -> tuple[SchemaPath, Any]:
    """Follow a schema that may be a reference to another place of the same document; return its place and itself."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        place, schema = ("inputSchema",), root
        for part in reference[2:].split("/", _MOST_REFERENCES):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or key not in schema:
                return place, None
            place, schema = (*place, key), schema[key]
    return place, schema


def _accepting(place: SchemaPath, schema: dict[str, Any], rule: Wrapped) -> list[Edit]:
    """The edits after which a schema accepts handles and says so."""
    loose = _loosened(schema, rule)
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list):
            # Branches that were told apart by what is dropped would all match: any of them will do.
            loose.pop(key, None)
            loose["anyOf"] = _any_of(branches, rule)
    loose["description"] = continued(schema.get("description"), rule.of_argument)
    edits: list[Edit] = [Drop((*place, key)) for key in schema if key not in loose]
    return edits + [
        Insert((*place, key), dump(item)) for key, item in loose.items() if schema.get(key) is not item
    ]


def _any_of(branches: list[Any], rule: Wrapped) -> list[Any]:
    loose = []
    accepts = False
    for branch in branches:
        if isinstance(branch, dict) and takes(branch, "string"):
            branch, accepts = _loosened(branch, rule), True
        elif isinstance(branch, dict) and takes(branch, "array"):
            items = branch.get("items")
            branch = {**branch, "items": _loosened(items, rule)} if isinstance(items, dict) else branch
            accepts = True
        loose.append(branch)
    return loose if accepts else [*loose, {"type": "string"}]


def _loosened(schema: dict[str, Any], rule: Wrapped) -> dict[str, Any]:
    """A schema of texts without what a handle does not meet; one of anything but lists becomes one of texts."""
    if takes(schema, "array") and not takes(schema, "string"):
        return dict(schema)
    if not takes(schema, "string") and "$ref" not in schema:
        return {"type": "string", **{key: schema[key] for key in ("title", "description") if key in schema}}
    shortest = len(upload_handle("0" * 32, "0" * 32, rule.upload_scheme))
    return {
        key: item
        for key, item in schema.items()
        if key not in _UNMET
        and not (key == "format" and item not in _URI_FORMATS)
        and not (key == "minLength" and not (isinstance(item, int) and item <= shortest))
        and not (key == "maxLength" and not (isinstance(item, int) and item >= _LONGEST_HANDLE))
    }


def takes(schema: dict[str, Any], kind: str) -> bool:
    """Tell whether a schema accepts values of this type; one that names no type is one of texts."""
    stated = schema.get("type")
    if stated is None:
        return kind == "string" and "$ref" not in schema
    return kind in stated if isinstance(stated, list) else bool(stated == kind)


def continued(description: object, sentence: str) -> str:
    """The description with a sentence behind it."""
    said = description.rstrip() if isinstance(description, str) else ""
    return f"{said}\n\n{sentence}" if said else sentence
