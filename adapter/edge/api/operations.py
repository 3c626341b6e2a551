"""The routes beside the tool API, described for OpenAPI: uploads, downloads and health."""

from __future__ import annotations

from adapter.edge.openapi import TEXT, Operation, RequestShape, Says, Schema, json, ref
from adapter.relay.files.signed_urls import DOWNLOADS

FILES, HEALTH = "files", "health"

_DETAIL = ref("Detail")
_OBJECT: Schema = {"type": "object"}
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
            _file(upload_path, "downloadDelivery", "Returns a file for a tool."),
        ]
    if downloads:
        described.append(
            _file(DOWNLOADS, "downloadArtifact", "Returns an artifact, by its link or for its owner.")
        )
    return described


def _health() -> list[Operation]:
    whole = json("Health of the adapter and its servers.", _OBJECT)
    state = json("The state.", _OBJECT)
    return [
        Operation(
            "GET",
            "/healthz",
            "showHealth",
            HEALTH,
            "Complete health report.",
            {200: whole, 503: whole},
            open=True,
        ),
        Operation(
            "GET",
            "/livez",
            "showLive",
            HEALTH,
            "Tells whether the process is alive.",
            {200: state},
            open=True,
        ),
        Operation(
            "GET",
            "/readyz",
            "showReady",
            HEALTH,
            "Tells whether servers can be called.",
            {200: state, 503: state},
            open=True,
        ),
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
            404: json("This server accepts no uploads.", _DETAIL),
            408: json("The upload stopped.", _DETAIL),
            413: json("A file is too large.", _DETAIL),
            415: json("The body is not a form.", _DETAIL),
            429: json("The files exceed a quota.", _DETAIL),
            500: json("A file could not be written.", _DETAIL),
            503: json("The adapter's state store is unavailable.", _DETAIL),
            507: json("There is no space.", _DETAIL),
        },
        asks=(
            RequestShape("sid", "query", "The future owner of the files; part of a signed link."),
            *_SIGNED,
            RequestShape(
                "nonce", "query", "Nonce that limits the link to one upload; part of a signed link."
            ),
        ),
        body={"multipart/form-data": _FORM},
        named=_NAMED,
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
            404: json("The file does not exist.", _DETAIL),
            416: json("The range begins after the end of the file.", _DETAIL),
            500: json("The file could not be read.", _DETAIL),
            503: json("The adapter's state store is unavailable.", _DETAIL),
        },
        asks=(*_SIGNED, *_PIECE),
        named=_NAMED,
    )
