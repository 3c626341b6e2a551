"""A schema with all its parts: each is looked at once, and references lead to where they lead within it. Pure.

Nothing is fetched. Beside what the schema holds there are only the meta-schemas of the drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from adapter.rules.schema.assertions import Check
from adapter.rules.schema.drafts import DRAFT_2020, Draft, draft_of
from adapter.rules.text.events import shortened

DEEPEST = 100
"""Schemas within schemas, as they are written."""

_LAST: Final = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords that look at what all others have looked at."""

_LONGEST = 300

LONGEST_URI = 4_096
"""Characters of a name of a schema, of a reference, and of what both are together."""


class SchemaInvalid(ValueError):
    """A schema that nothing can be checked by; ``str`` is a sentence that says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shortened(sentence.partition("\n")[0], _LONGEST))


class SchemaTooLarge(Exception):
    """A schema has more parts than are looked at here."""


class SchemaResource:
    """A schema with a URI of its own, and the names in it; what it refers to is relative to it."""

    __slots__ = ("anchors", "draft", "dynamic", "recursive", "root", "uri")

    def __init__(self, uri: str, root: Any, draft: Draft) -> None:
        self.uri = uri
        self.root = root
        self.draft = draft
        self.anchors: dict[str, Any] = {}
        self.dynamic: dict[str, Any] = {}
        self.recursive = isinstance(root, dict) and root.get("$recursiveAnchor") is True

    def __repr__(self) -> str:
        return f"<SchemaResource {self.uri!r}>"


class SchemaNode:
    """One schema within a document, and what its keywords check: function and value, in their order."""

    __slots__ = ("_document", "checks", "draft", "resource", "schema")

    def __init__(self, document: SchemaDocument, schema: Any, resource: SchemaResource) -> None:
        self._document = document
        self.schema = schema
        self.resource = resource
        self.draft = resource.draft
        self.checks: Sequence[tuple[Check, Any]] = tuple(_checks(schema, resource.draft))

    def part(self, schema: Any) -> SchemaNode:
        """A schema that stands in the value of one of its keywords."""
        return self._document.node(schema, self.resource)

    def referred(self, reference: str) -> SchemaNode:
        """Return the schema to which ``$ref`` leads. Raises SchemaInvalid if there is none."""
        return self._document.resolved(reference, self.resource)

    def dynamically_referred(self, reference: str, scope: Sequence[SchemaResource]) -> SchemaNode:
        """Return the schema to which ``$dynamicRef`` leads: the dynamic anchor of its name that was entered first."""
        target = self.referred(reference)
        name = reference.partition("#")[2]
        if target.resource.dynamic.get(name) is not target.schema:
            return target
        first = next((each for each in scope if name in each.dynamic), target.resource)
        return self._document.node(first.dynamic[name], first)

    def recursively_referred(self, reference: str, scope: Sequence[SchemaResource]) -> SchemaNode:
        """Return the schema to which ``$recursiveRef`` leads.

        Of the surrounding schemas with ``$recursiveAnchor`` it is the one that was entered first.
        """
        target = self.referred(reference)
        if not target.resource.recursive or target.schema is not target.resource.root:
            return target
        first = next((each for each in scope if each.recursive), target.resource)
        return self._document.node(first.root, first)


class SchemaDocument:
    """``most`` is how many parts it may have, those of meta-schemas apart. Raises SchemaInvalid and SchemaTooLarge."""

    def __init__(self, schema: Any, most: int) -> None:
        self.tracks = False
        self.patterns: dict[str, None] = {}
        self._left = most
        self._resources: dict[str, SchemaResource] = {}
        self._owners: dict[int, SchemaResource] = {}
        self._nodes: dict[int, SchemaNode] = {}
        self._targets: dict[tuple[int, str], SchemaNode] = {}
        self.root = self._added("", schema, draft_of(schema, DRAFT_2020))

    def __repr__(self) -> str:
        return f"<SchemaDocument: {len(self._owners)} parts>"

    def node(self, schema: Any, resource: SchemaResource) -> SchemaNode:
        """The schema, ready to be judged by; ``resource`` is what it stands in."""
        if not isinstance(schema, dict):
            # Booleans are few, and all the same.
            return SchemaNode(self, schema, resource)
        node = self._nodes.get(id(schema))
        if node is None:
            owner = self._owners.get(id(schema), resource)
            node = self._nodes[id(schema)] = SchemaNode(self, schema, owner)
        return node

    def resolved(self, reference: str, resource: SchemaResource) -> SchemaNode:
        """Return the schema to which a reference in ``resource`` leads. Raises SchemaInvalid if there is none."""
        key = (id(resource), reference)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._found(reference, resource)
        return target

    # --- what is in it ----------------------------------------------------------------------------------------

    def _added(self, uri: str, schema: Any, draft: Draft) -> SchemaNode:
        resource = SchemaResource(uri, schema, draft)
        self._resources[uri] = resource
        self._survey(schema, resource, ())
        return self.node(schema, resource)

    def _survey(self, schema: Any, resource: SchemaResource, where: tuple[str | int, ...]) -> None:
        """Look at a schema and all within: whether each keyword has its form, and what has a name."""
        self._take(1)
        if len(where) > 2 * DEEPEST:
            raise SchemaInvalid("The schema is nested too deeply.")
        if not isinstance(schema, dict):
            if not isinstance(schema, bool):
                raise _invalid(where, schema, "a schema is an object")
            return
        self._take(len(schema) >> 3)
        resource = self._named(schema, resource, where)
        self._owners[id(schema)] = resource
        alone = resource.draft.ref_is_alone and "$ref" in schema
        for keyword, value in schema.items():
            form = resource.draft.forms.get(keyword)
            if form is None:
                continue
            self._take(len(value) >> 3 if isinstance(value, list | dict) else 0)
            if not form.has(value):
                raise _invalid((*where, keyword), value, form.expected)
            if form.parts is not None:
                for place, part in form.parts(value):
                    self._survey(part, resource, (*where, keyword, *place))
            if not alone:
                self._note(keyword, value)

    def _take(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise SchemaTooLarge

    def _joined(self, base: str, reference: str) -> str:
        """A URI that is relative to another. Raises SchemaInvalid for a long one."""
        if len(base) + len(reference) > LONGEST_URI:
            raise SchemaInvalid(f"A URI of the schema is longer than {LONGEST_URI} characters.")
        self._take(len(base) + len(reference) >> 6)
        # Not every kind of URI can be joined, but a fragment belongs to any.
        if reference.startswith("#"):
            return urldefrag(base)[0] + reference
        return urljoin(base, reference)

    def _note(self, keyword: str, value: Any) -> None:
        if keyword == "pattern":
            self.patterns[value] = None
        elif keyword == "patternProperties":
            self.patterns.update(dict.fromkeys(value))
        elif keyword in _LAST:
            self.tracks = True

    def _named(
        self, schema: Mapping[str, Any], resource: SchemaResource, where: Sequence[Any]
    ) -> SchemaResource:
        """The resource that the schema begins, or else stands in, with the names it has there."""
        draft = resource.draft
        if draft.ref_is_alone and "$ref" in schema:
            return resource
        name = schema.get(draft.name_keyword)
        if isinstance(name, str):
            uri, fragment = urldefrag(self._joined(resource.uri, name))
            if fragment and name.startswith("#"):
                # Before 2019-09 this was how an anchor is written.
                resource.anchors[fragment] = schema
            elif where or uri:
                resource = self._begun(uri, schema, resource, where)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str) and keyword in draft.forms:
                resource.anchors[anchor] = schema
                if keyword == "$dynamicAnchor":
                    resource.dynamic[anchor] = schema
        return resource

    def _begun(
        self, uri: str, schema: Mapping[str, Any], around: SchemaResource, where: Sequence[Any]
    ) -> SchemaResource:
        if not where:
            around.uri = uri
            self._resources.setdefault(uri, around)
            return around
        begun = SchemaResource(uri, schema, draft_of(schema, around.draft))
        # What is there already keeps its name: a schema that is named like its root would be a circle.
        self._resources.setdefault(uri, begun)
        return begun

    # --- where references lead --------------------------------------------------------------------------------

    def _found(self, reference: str, resource: SchemaResource) -> SchemaNode:
        try:
            uri, fragment = urldefrag(self._joined(resource.uri, reference))
            fragment = unquote(fragment, errors="strict")
        except SchemaInvalid:
            raise
        except ValueError:
            raise _missing(reference) from None
        home = resource if reference.startswith("#") else self._resources.get(uri) or self._meta_schema(uri)
        if home is None:
            raise _missing(reference)
        if not fragment:
            return self.node(home.root, home)
        if not fragment.startswith("/"):
            if fragment not in home.anchors:
                raise _missing(reference)
            return self.node(home.anchors[fragment], home)
        return self._at(fragment, home, reference)

    def _at(self, pointer: str, home: SchemaResource, reference: str) -> SchemaNode:
        target: Any = home.root
        for part in pointer[1:].split("/"):
            # Schemas on the way may have URIs of their own.
            home = self._owners.get(id(target), home) if isinstance(target, dict) else home
            try:
                target = _member(target, part.replace("~1", "/").replace("~0", "~"))
            except (LookupError, TypeError, ValueError):
                raise _missing(reference) from None
        if isinstance(target, dict) and id(target) not in self._owners:
            # It stands where no keyword has schemas, so nobody has looked at it.
            self._survey(target, home, (reference,))
        elif not isinstance(target, dict | bool):
            raise SchemaInvalid(f"The schema refers to something that is not a schema: {reference}")
        return self.node(target, home)

    def _meta_schema(self, uri: str) -> SchemaResource | None:
        schema = meta_schemas().get(uri)
        if schema is None:
            return None
        self._left += 1000
        return self._added(uri, schema, draft_of(schema, DRAFT_2020)).resource


def meta_schemas() -> Mapping[str, Any]:
    """The meta-schemas of the drafts by their URIs, without the ``#`` that may stand at their ends."""
    if not _meta_schemas:
        # They are read from their package when the first schema refers to one.
        from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # it has no types

        _meta_schemas.update((uri.removesuffix("#"), REGISTRY.contents(uri)) for uri in REGISTRY)
    return _meta_schemas


_meta_schemas: dict[str, Any] = {}


def _checks(schema: Any, draft: Draft) -> Iterator[tuple[Check, Any]]:
    if not isinstance(schema, dict):
        return
    if draft.ref_is_alone and "$ref" in schema:
        yield draft.checks["$ref"], schema["$ref"]
        return
    for keyword, value in sorted(schema.items(), key=lambda member: member[0] in _LAST):
        check = draft.checks.get(keyword)
        if check is not None:
            yield check, value


def _member(value: Any, name: str) -> Any:
    if isinstance(value, list):
        if not (name.isascii() and name.isdigit()):
            raise LookupError(name)
        return value[int(name)]
    return value[name]


def _missing(reference: str) -> SchemaInvalid:
    return SchemaInvalid(f"The schema refers to a part that does not exist: {reference}")


def _invalid(where: Sequence[str | int], value: Any, expected: str) -> SchemaInvalid:
    place = shortened(".".join(shortened(str(part), 100) for part in where), 200) or "its root"
    return SchemaInvalid(f"The schema is invalid at {place}: {_shown(value)} is not valid: {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(shortened(value, 50))
    return "the value" if isinstance(value, list | dict) else repr(value)
