"""The routes beside the tool API, described for OpenAPI: uploads, downloads and health."""

from __future__ import annotations

from adapter.edge.openapi import OPEN, TEXT, Operation, RequestShape, Says, Schema, Takes, json, ref
from adapter.relay.files.signed_urls import DOWNLOADS

FILES, HEALTH = "files", "health"

_DETAIL = ref("Detail")
_OBJECT: Schema = {"type": "object"}
_SIGNED = (
    RequestShape("exp", "query", "When the link expires, in Unix seconds; part of a signed link."),
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
_UPLOADED: Schema = {
    "type": "object",
    "required": ["server_id", "session_id", "uploads", "upload_handles", "count"],
    "properties": {
        "server_id": TEXT,
        "session_id": TEXT,
        "uploads": {"type": "array", "items": _OBJECT},
        "upload_handles": {"type": "array", "items": TEXT},
        "count": {"type": "integer"},
        "upload_handle": TEXT,
        "upload": _OBJECT,
    },
}
_FORM: Schema = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "sha256": {"type": "array", "items": TEXT},
    },
}


def operations(upload_path: str | None, *, downloads: bool) -> list[Operation]:
    """All of them. ``upload_path`` is where uploads are served, None: nowhere; ``downloads``: artifacts are too."""
    described = _health()
    if upload_path is not None:
        described += [
            _upload(upload_path),
            _file(upload_path, "downloadDelivery", "A file that a tool was handed."),
        ]
    if downloads:
        described.append(_file(DOWNLOADS, "downloadArtifact", "An artifact, by its link or by who owns it."))
    return described


def _health() -> list[Operation]:
    whole = json("How the adapter and its servers are.", _OBJECT)
    state = json("The state.", _OBJECT)
    return [
        Operation(
            "GET", "/healthz", "showHealth", HEALTH, "The whole picture.", {200: whole, 503: whole}, OPEN
        ),
        Operation("GET", "/livez", "showLive", HEALTH, "Whether the process lives.", {200: state}, OPEN),
        Operation(
            "GET",
            "/readyz",
            "showReady",
            HEALTH,
            "Whether servers can be called.",
            {200: state, 503: state},
            OPEN,
        ),
    ]


def _upload(path: str) -> Operation:
    return Operation(
        "POST",
        f"{path.rstrip('/')}/{{server}}",
        "uploadFiles",
        FILES,
        "Takes the files of a form, all of them or none.",
        {
            200: json("The handles of the files.", _UPLOADED),
            400: json("The form is not what was announced.", _DETAIL),
            401: json("The link or the token is not valid.", _DETAIL),
            404: json("This server takes no uploads.", _DETAIL),
            408: json("The upload stopped coming.", _DETAIL),
            413: json("A file is too large.", _DETAIL),
            415: json("The body is no form.", _DETAIL),
            429: json("The files are more than may be kept.", _DETAIL),
            500: json("A file could not be written.", _DETAIL),
            503: json("The adapter's store is away.", _DETAIL),
            507: json("There is no room.", _DETAIL),
        },
        Takes(
            (
                RequestShape("sid", "query", "The scope that the files will be of; part of a signed link."),
                *_SIGNED,
                RequestShape(
                    "nonce", "query", "What makes the link good for one upload; part of a signed link."
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
            206: Says("A range of it.", anything, {"Content-Range": "Which."}),
            304: Says("It is as it was."),
            401: json("The link or the token is not valid.", _DETAIL),
            404: json("The file is not here.", _DETAIL),
            416: json("The range begins behind its end.", _DETAIL),
            500: json("The file could not be read.", _DETAIL),
            503: json("The adapter's store is away.", _DETAIL),
        },
        Takes((*_SIGNED, *_PIECE), named=_NAMED),
    )
