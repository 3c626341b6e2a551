"""The tools of one of the adapter's servers for the tool API: its callers, and their calls through the relay."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from adapter.edge.api.tool_api import ApiResult, Tell
from adapter.edge.http.access import Bases, Guard
from adapter.edge.http.request import Request
from adapter.edge.http.response import CallStream
from adapter.errors import (
    AdapterError,
    BadRequest,
    CatalogueDrifted,
    Unauthorized,
    UpstreamBroken,
    UrlElicitationRequired,
)
from adapter.pipeline.call import AuthRequest
from adapter.relay.http_api.callers import InputRequired
from adapter.relay.http_api.dialogue import Dialogue
from adapter.relay.http_api.sessions import HttpSessions, ToolRefused, Who
from adapter.rules.access.browser_sessions import TAB_FIELD
from adapter.rules.access.principals import ANONYMOUS, Caller, Identity
from adapter.rules.files.filenames import content_disposition
from adapter.rules.results.outcomes import ERROR_KEY, text_block

ANSWERS_FIELD = "X-Adapter-Answers"
"""The field with which the console's page says that a person can answer: its value is ``elicitation``."""

INPUT_KEY, LINKS_KEY = "_input_required", "_elicitations"
"""Members of ``_meta``: the questions of a modern server, and the links to open before the call is made again."""

MOST_LINKS = 16

_TAB = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Callers:
    """Finds the caller of a request for ``resource``, which is the id of a server or CONSOLE.

    ``credentials`` are the fields (lower case) that may carry the adapter's own.

    Requests on one connection share a head as long as it stays the same, so its caller is looked up once.
    """

    def __init__(self, guard: Guard, bases: Bases, credentials: frozenset[str], resource: str) -> None:
        self._guard = guard
        self._resource = resource
        self._bases = bases
        self._credentials = credentials | {"authorization"}

    def authenticate(self, request: Request) -> None:
        """Raises Unauthorized."""
        self._guard.identify(request.headers, self._resource)

    def of(self, request: Request) -> Who:
        """The caller; a stranger has no tab, for all strangers share one session. Raises BadRequest."""
        who: Who | None = request.headers.derived.get(self)
        if who is None:
            who = request.headers.derived[self] = self._who(request)
        return who

    def _who(self, request: Request) -> Who:
        headers = request.headers
        tab = headers.get(TAB_FIELD)
        if tab is not None and _TAB.fullmatch(tab) is None:
            raise BadRequest(f"{TAB_FIELD} must be up to 64 letters, digits, - and _.")
        try:
            identity = self._guard.identify(headers, self._resource)
        except Unauthorized:
            # What it sent may be meant for the adapter alone, so none of it may reach a server.
            identity, tab = Identity(ANONYMOUS, self._credentials), None
        principal, withheld, scopes, claims, _ = identity
        # Strangers share one session, so that none of them can be asked.
        answers = tab is not None and headers.get(ANSWERS_FIELD) == "elicitation"
        caller = Caller(principal, "http", headers, withheld, scopes, claims)
        return Who(caller, tab, self._bases.of(request), answers)


class ServerTools:
    """A Provider: callers see and run the tools that MCP clients would, each in a session of its own."""

    reads = True

    def __init__(self, server: str, sessions: HttpSessions, callers: Callers) -> None:
        self.name = server
        self._sessions = sessions
        self._callers = callers

    def principal(self, request: Request) -> str:
        """See Provider. Raises BadRequest."""
        return self._callers.of(request).principal

    def view(self, request: Request, name: str) -> AuthRequest:
        """The part of a call that a hook sees."""
        return AuthRequest.of(self.name, name, self._callers.of(request).caller)

    async def tools(self, request: Request) -> Sequence[Any]:
        """See Provider. Raises AdapterError."""
        try:
            return await self._sessions.tools(self._callers.of(request))
        except ToolRefused as refused:
            raise _not_listed(refused) from refused

    async def tool(self, name: str, request: Request) -> Any | None:
        """See Provider. Raises AdapterError."""
        try:
            return await self._sessions.tool(self._callers.of(request), name)
        except ToolRefused as refused:
            raise _not_listed(refused) from refused

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        request: Request,
        tell: Tell | None,
        continued: Mapping[str, Any] | None = None,
    ) -> ApiResult:
        """See Provider; a JSON-RPC error is a failed result, except for questions to a caller who can answer them.

        Raises AdapterError, and what ``tell`` raises.
        """
        who = self._callers.of(request)
        if who.answers and isinstance(tell, CallStream):
            tell = Dialogue(tell.event)
        try:
            return ApiResult(await self._sessions.call(who, name, arguments, tell, continued))
        except ToolRefused as refused:
            asked = questions_of(refused) if who.answers else None
            if asked is not None:
                return ApiResult({"content": [], "isError": False, "_meta": asked})
            meta = {ERROR_KEY: refused.data} if isinstance(refused.data, Mapping) else {}
            return ApiResult({"content": [text_block(str(refused))], "isError": True, "_meta": meta})


def questions_of(refused: ToolRefused) -> dict[str, Any] | None:
    """The ``_meta`` of an answer that asks a person for input first; None for any other refusal."""
    if isinstance(refused, InputRequired):
        return {INPUT_KEY: {"inputRequests": refused.requests, "requestState": refused.state}}
    data = refused.data
    if refused.code == UrlElicitationRequired.rpc and isinstance(data, Mapping):
        links = data.get("elicitations")
        if isinstance(links, list):
            return {LINKS_KEY: {"message": str(refused), "elicitations": links[:MOST_LINKS]}}
    return None


def _not_listed(refused: ToolRefused) -> AdapterError:
    """The reason why there is no list: the server has none, or its tools are not those that the caller first saw."""
    if refused.code == CatalogueDrifted.rpc:
        return CatalogueDrifted(str(refused))
    return UpstreamBroken(f"The upstream server does not list its tools: {refused}")


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


def preview_of(contents: list[dict[str, Any]], uri: str) -> Preview | None:
    """The first content of a resource that has a text or bytes."""
    filename = unquote(uri.partition("?")[0].rstrip("/").rpartition("/")[2]) or "resource"
    for each in contents:
        media_type = each.get("mimeType")
        kind = media_type.partition(";")[0].strip().lower() if isinstance(media_type, str) else ""
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
