"""The HTTP routes as an OpenAPI 3.1 document. Each table of routes stands next to the code that serves them.

A route is described by an Operation; ``document`` puts any number of them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from adapter.wire.envelope import dump

VERSION = "3.1.0"

Schema = Mapping[str, Any]
Json = dict[str, Any]

TEXT: Schema = {"type": "string"}
JSON_TYPE = "application/json"

_IN_PATH = re.compile(r"\{([^{}]+)\}")


def ref(name: str) -> Schema:
    """A schema among the components."""
    return {"$ref": f"#/components/schemas/{name}"}


class Says(NamedTuple):
    """An answer: in words, and by media type the schema of its body; without any it has none.

    ``fields`` are header fields worth knowing, with what they say.
    """

    words: str
    content: Mapping[str, Schema | None] = {}
    fields: Mapping[str, str] = {}


def json(words: str, schema: Schema, **fields: str) -> Says:
    """An answer in JSON; ``fields`` with ``_`` for ``-``."""
    return Says(words, {JSON_TYPE: schema}, {name.replace("_", "-"): said for name, said in fields.items()})


class RequestShape(NamedTuple):
    """A parameter beside those in the path."""

    name: str
    place: str
    words: str
    required: bool = False
    schema: Schema = TEXT


class Takes(NamedTuple):
    """The parts of a request: parameters, the body by media type, and the meaning of the names in the path.

    ``open``: the route never asks for the adapter's own token.
    """

    asks: tuple[RequestShape, ...] = ()
    body: Mapping[str, Schema] = {}
    named: Mapping[str, str] = {}
    open: bool = False


NOTHING, OPEN = Takes(), Takes(open=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """One route. ``path`` has its parameters in braces."""

    method: str
    path: str
    id: str
    tag: str
    summary: str
    answers: Mapping[int, Says]
    takes: Takes = NOTHING

    def below(self, prefix: str) -> Operation:
        """The same route under a prefix."""
        return replace(self, path=prefix.rstrip("/") + self.path)

    def described(self) -> Json:
        """As an Operation Object."""
        described: Json = {"operationId": self.id, "tags": [self.tag], "summary": self.summary}
        parameters = [self._in_path(name) for name in _IN_PATH.findall(self.path)]
        parameters += [
            {"name": asks.name, "in": asks.place, "description": asks.words, "required": asks.required}
            | {"schema": asks.schema}
            for asks in self.takes.asks
        ]
        if parameters:
            described["parameters"] = parameters
        if self.takes.body:
            described["requestBody"] = {"content": _content(self.takes.body)}
        described["responses"] = {
            str(status): _response(says) for status, says in sorted(self.answers.items())
        }
        # Nobody has to say who they are where the adapter asks nobody: the empty object says so.
        described["security"] = [] if self.takes.open else [{}, {"bearer": []}]
        return described

    def _in_path(self, name: str) -> Json:
        words = self.takes.named.get(name, name)
        return {"name": name, "in": "path", "required": True, "description": words, "schema": TEXT}


COMPONENTS: dict[str, Schema] = {
    "Error": {"type": "object", "required": ["error"], "properties": {"error": TEXT}},
    "Detail": {"type": "object", "required": ["detail"], "properties": {"detail": TEXT}},
}
"""Schemas that every table may refer to; others come with the table."""


def document(
    operations: Iterable[Operation], schemas: Mapping[str, Schema], *, title: str, version: str
) -> bytes:
    """The document as JSON. Raises ValueError for two operations of one id, or of one method and path."""
    paths: dict[str, Json] = {}
    ids: set[str] = set()
    for operation in operations:
        methods = paths.setdefault(operation.path, {})
        method = operation.method.lower()
        if operation.id in ids or method in methods:
            raise ValueError(f"{operation.method} {operation.path} ({operation.id}) is described twice")
        ids.add(operation.id)
        methods[method] = operation.described()
    return dump(
        {
            "openapi": VERSION,
            "info": {"title": title, "version": version},
            "paths": paths,
            "components": {
                "schemas": {**COMPONENTS, **schemas},
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _content(by_type: Mapping[str, Schema | None]) -> Json:
    return {kind: {} if schema is None else {"schema": schema} for kind, schema in by_type.items()}


def _response(says: Says) -> Json:
    described: Json = {"description": says.words}
    if says.fields:
        described["headers"] = {
            name: {"description": words, "schema": TEXT} for name, words in says.fields.items()
        }
    if says.content:
        described["content"] = _content(says.content)
    return described
