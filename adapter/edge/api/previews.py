"""Bytes of a resource over HTTP, for a preview: whatever a tool wrote, it never runs as a page of ours."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple
from urllib.parse import unquote

from adapter.edge.api.responses import Extra, send
from adapter.edge.api.server_tools import Callers
from adapter.edge.http.branches import query_of
from adapter.edge.http.request import Request
from adapter.edge.openapi import Operation, RequestShape, Says, json, ref
from adapter.errors import AdapterError
from adapter.relay.http_api.callers import METHOD_NOT_FOUND
from adapter.relay.http_api.sessions import HttpSessions, ToolRefused
from adapter.rules.calls.tool_api import UNAUTHORIZED, refused
from adapter.rules.files.filenames import content_disposition

UNKNOWN_TYPE = "application/octet-stream"

_SEEN_INLINE = frozenset(
    {
        "text/plain",
        *(f"image/{kind}" for kind in ("avif", "bmp", "gif", "jpeg", "png", "webp")),
        *(f"audio/{kind}" for kind in ("aac", "flac", "mp4", "mpeg", "ogg", "wav", "webm", "x-wav")),
    }
)
_TYPES = _SEEN_INLINE | {
    *("application/json", "application/pdf", "image/svg+xml", "text/csv", "text/markdown"),
    *("video/mp4", "video/ogg", "video/webm"),
}
_NO_SUCH_RESOURCE = (-32002, -32602, METHOD_NOT_FOUND)
"""What servers answer who have not this resource, or none at all."""

RESOURCE = Operation(
    "GET",
    "/resources",
    "readResource",
    "files",
    "The bytes of a resource, such as an artifact.",
    {
        200: Says(
            "The bytes.", {"*/*": None}, {"Content-Disposition": "Whether they may be shown as they are."}
        ),
        400: json("The address of the resource is missing.", ref("Error")),
        401: json("The caller is not known.", ref("Error")),
        404: json("There is no such resource.", ref("Error")),
        429: json("Too much is under way.", ref("Error")),
        502: json("The server behind the adapter did not answer.", ref("Error")),
        503: json("The server behind the adapter is not well.", ref("Error")),
        504: json("The server behind the adapter was silent for too long.", ref("Error")),
    },
    asks=(RequestShape("uri", "query", "The resource's URI.", required=True),),
)


class Preview(NamedTuple):
    """A resource's bytes, its media type where that is a known one, and the name to save it under."""

    body: bytes
    media_type: str
    filename: str

    def fields(self) -> list[tuple[str, str]]:
        """The header fields that tell a browser about the contents."""
        fields = [
            ("Content-Type", self.media_type),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "sandbox; default-src 'none'"),
        ]
        if self.media_type.partition(";")[0] not in _SEEN_INLINE:
            fields.append(("Content-Disposition", content_disposition(self.filename)))
        return fields


class Previews:
    """Reads resources of one server for its callers, in their own sessions: of nobody else's does it know."""

    def __init__(self, sessions: HttpSessions, callers: Callers) -> None:
        self._sessions = sessions
        self._callers = callers

    async def serve(self, request: Request, extra: Extra) -> None:
        """``GET /resources?uri=…``. Raises ClientGone."""
        uri = query_of(request).get("uri")
        if not uri:
            send(request, refused(400, "Say which resource: ?uri=…"), extra)
            return
        try:
            self._callers.authenticate(request)
            contents = await self._sessions.read_resource(self._callers.of(request), uri)
        except ToolRefused as error:
            status = 404 if error.code in _NO_SUCH_RESOURCE else 502
            send(request, refused(status, f"The resource cannot be read: {error}"), extra)
        except AdapterError as error:
            answered = UNAUTHORIZED if error.http == 401 else refused(max(error.http, 400), str(error))
            send(request, answered, extra)
        else:
            preview = preview_of(contents, uri)
            if preview is None:
                send(request, refused(404, "The resource has no contents."), extra)
            else:
                request.reply.send(200, [*preview.fields(), *extra], preview.body)


def preview_of(contents: list[dict[str, Any]], uri: str) -> Preview | None:
    """The first of a resource's contents that has any."""
    filename = unquote(uri.partition("?")[0].rstrip("/").rpartition("/")[2]) or "resource"
    for each in contents:
        said = each.get("mimeType")
        kind = said.partition(";")[0].strip().lower() if isinstance(said, str) else ""
        if isinstance(each.get("text"), str):
            kind = kind if kind in _TYPES else "text/plain"
            return Preview(each["text"].encode("utf-8", "replace"), f"{kind}; charset=utf-8", filename)
        if isinstance(each.get("blob"), str):
            try:
                body = base64.b64decode(each["blob"])
            except (binascii.Error, ValueError):
                return None
            return Preview(body, kind if kind in _TYPES else UNKNOWN_TYPE, filename)
    return None
