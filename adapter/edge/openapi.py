"""The HTTP routes as an OpenAPI 3.1 document. Each table of routes stands next to the code that serves them.

A route is described by an Operation; ``document`` puts any number of them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from adapter.edge.http.response import EVENT_STREAM
from adapter.relay.files.signed_urls import DOWNLOADS
from adapter.wire.envelope import dump

VERSION = "3.1.0"

Schema = Mapping[str, Any]
Json = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
YES: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}
JSON_TYPE = "application/json"

_IN_PATH = re.compile(r"\{([^{}]+)\}")


def ref(name: str) -> Schema:
    """A schema among the components."""
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(kind: str) -> Schema:
    """A value of this type, or null."""
    return {"type": [kind, "null"]}


def list_of(items: Schema) -> Schema:
    """A list of such values."""
    return {"type": "array", "items": items}


def object_of(members: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object that has all ``members``, and may have the ``optional`` ones."""
    return {"type": "object", "required": list(members), "properties": {**members, **(optional or {})}}


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

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(self.path.strip("/").split("/"))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of the route; GET includes HEAD, except for a stream, whose answer has no end."""
        answer = self.answers.get(200)
        streams = answer is not None and [*answer.content] == [EVENT_STREAM]
        return ("GET", "HEAD") if self.method == "GET" and not streams else (self.method,)

    def below(self, prefix: str) -> Operation:
        """The same route under a prefix."""
        return replace(self, path=prefix.rstrip("/") + self.path)

    def described(self) -> Json:
        """The route as an Operation Object."""
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


FILES, HEALTH = "files", "health"

# --- uploads, downloads and health -----------------------------------------------------------------------------

_DETAIL = ref("Detail")
_SIGNED = (
    RequestShape("exp", "query", "Expiry of the link in Unix seconds; part of a signed link."),
    RequestShape("sig", "query", "The signature; part of a signed link."),
)
_PIECE = (
    RequestShape(
        "Range",
        "header",
        "RequestShape for a part of it.",
        schema={"type": "string", "pattern": "^bytes=([0-9]{1,15}-([0-9]{1,15})?|-[0-9]{1,15})$"},
    ),
    RequestShape("If-None-Match", "header", "RequestShape for it only if it has not one of these ETags."),
)
_NAMED = {
    "server": "The server's id.",
    "scope": "The public id of the session or principal that owns the file.",
    "file": "The file's id.",
    "filename": "The file's name.",
}
_UPLOADED = object_of(
    {
        "server_id": TEXT,
        "session_id": TEXT,
        "uploads": list_of(ANY_OBJECT),
        "upload_handles": list_of(TEXT),
        "count": {"type": "integer"},
    },
    {"upload_handle": TEXT, "upload": ANY_OBJECT},
)
_FORM = object_of({"file": list_of({"type": "string", "format": "binary"})}, {"sha256": list_of(TEXT)})


def operations(upload_path: str | None, *, downloads: bool) -> list[Operation]:
    """The operations beside those of tools. ``upload_path`` is the path of uploads, None without any; ``downloads``:
    artifacts are served too.
    """
    described = _health()
    if upload_path is not None:
        described += [
            _upload(upload_path),
            _file(upload_path, "downloadDelivery", "Returns a file for a tool."),
        ]
    if downloads:
        described.append(
            _file(DOWNLOADS, "downloadArtifact", "Returns an artifact, by its link or for its owner.")
        )
    return described


def _health() -> list[Operation]:
    whole = json("Health of the adapter and its servers.", ANY_OBJECT)
    state = json("The state.", ANY_OBJECT)
    both = {200: state, 503: state}
    return [
        Operation(
            "GET",
            "/healthz",
            "showHealth",
            HEALTH,
            "Complete health report.",
            dict.fromkeys(both, whole),
            OPEN,
        ),
        Operation(
            "GET", "/livez", "showLive", HEALTH, "Tells whether the process is alive.", {200: state}, OPEN
        ),
        Operation("GET", "/readyz", "showReady", HEALTH, "Tells whether servers can be called.", both, OPEN),
    ]


def _upload(path: str) -> Operation:
    return Operation(
        "POST",
        f"{path.rstrip('/')}/{{server}}",
        "uploadFiles",
        FILES,
        "Stores all files of a form, or none of them.",
        {
            200: json("The handles of the files.", _UPLOADED),
            400: json("The form does not match the announcement.", _DETAIL),
            401: json("The link or the token is not valid.", _DETAIL),
            403: json("The token has too few scopes.", _DETAIL),
            404: json("This server accepts no uploads.", _DETAIL),
            408: json("The upload stopped.", _DETAIL),
            413: json("A file is too large.", _DETAIL),
            415: json("The body is not a form.", _DETAIL),
            429: json("The files exceed a quota.", _DETAIL),
            500: json("A file could not be written.", _DETAIL),
            503: json("The adapter's state store is unavailable.", _DETAIL),
            507: json("There is no space.", _DETAIL),
        },
        Takes(
            (
                RequestShape("sid", "query", "The future owner of the files; part of a signed link."),
                *_SIGNED,
                RequestShape(
                    "nonce", "query", "Nonce that limits the link to one upload; part of a signed link."
                ),
            ),
            {"multipart/form-data": _FORM},
            _NAMED,
        ),
    )


def _file(path: str, name: str, summary: str) -> Operation:
    anything = {"*/*": None}
    return Operation(
        "GET",
        f"{path.rstrip('/')}/{{server}}/{{scope}}/{{file}}/{{filename}}",
        name,
        FILES,
        summary,
        {
            200: Says("The file.", anything, {"ETag": "Its digest.", "Content-Disposition": "Its name."}),
            206: Says("A range of the file.", anything, {"Content-Range": "Which."}),
            304: Says("It is unchanged."),
            401: json("The link or the token is not valid.", _DETAIL),
            403: json("The token has too few scopes.", _DETAIL),
            404: json("The file does not exist.", _DETAIL),
            416: json("The range begins after the end of the file.", _DETAIL),
            500: json("The file could not be read.", _DETAIL),
            503: json("The adapter's state store is unavailable.", _DETAIL),
        },
        Takes((*_SIGNED, *_PIECE), named=_NAMED),
    )
