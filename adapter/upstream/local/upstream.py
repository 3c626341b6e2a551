"""A server in this process as one more upstream: the relay sees sessions, statuses and streams as over HTTP."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from adapter.errors import (
    AdapterError,
    BadJson,
    BadRequest,
    HeaderMismatch,
    SessionMissing,
    SessionUnknown,
    UnsupportedMediaType,
    UpstreamUnreachable,
)
from adapter.rules.access.headers import SharedFields
from adapter.upstream.local.events import EventStream
from adapter.upstream.local.port import LocalHead, LocalRequest, LocalServer
from adapter.upstream.local.replies import (
    CAPABILITIES_KEY,
    JSON,
    Deadlines,
    LocalAnswer,
    PendingReply,
    RpcRefused,
    refusal,
    whole,
)
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.port import Fields, Headers, UpstreamReply, UpstreamRequest, WholeReply, fields_of
from adapter.wire.envelope import INVALID_PARAMS, Batch, Envelope, Kind, envelope_of, failure, parse
from adapter.wire.eras import LEGACY_VERSIONS, Era, check_mirrors, classify, is_modern
from adapter.wire.names import VERSION_KEY

BATCH_VERSION = "2025-03-26"
"""The one protocol version that has JSON-RPC batches."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_REFUSED = (BadJson, BadRequest, SessionMissing, SessionUnknown, UnsupportedMediaType)

_Awaited: TypeAlias = Coroutine[Any, Any, UpstreamReply]
"""A reply that is waited for once, at the top: each coroutine in between would be resumed for every answer."""

S_co = TypeVar("S_co", bound=LocalServer, covariant=True)


class LocalUpstream(Generic[S_co]):
    """An Upstream whose requests are answered by ``server``."""

    def __init__(self, server: S_co) -> None:
        self.server = server
        self._closed = False
        self._deadlines = Deadlines()

    def __repr__(self) -> str:
        return f"<LocalUpstream of {self.server!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Raises UpstreamSilent for a server that sends nothing for ``read_timeout`` seconds."""
        if self._closed:
            raise UpstreamUnreachable()
        try:
            if request.method == "POST":
                return await self._post(request, read_timeout)
            return self._get_or_delete(request.method, fields_of(request.headers))
        except _REFUSED as error:
            return _refused(error)

    async def close(self) -> None:
        """End every session and stream, and the requests under way."""
        self._closed = True
        self.server.sessions.close()
        await self.server.close()
        self._deadlines.close()

    # --- POST -------------------------------------------------------------------------------------------------

    def _post(self, request: UpstreamRequest, read_timeout: float | None) -> _Awaited:
        fields = _fields(request.headers)
        body = _decoded(request.body, fields) if "content-encoding" in fields else request.body
        known = request.envelope
        # What a client compressed, or stages changed, is another message than the one that was read.
        if known is None or known.body is not body:
            message = parse(body)
            envelope = envelope_of(message, body)
        else:
            message = parse(body) if self.server.reads_params else None
            envelope = known
        era = classify(fields.get("mcp-protocol-version"), envelope)
        accept = (fields.get("accept") or "").lower()
        # A message that came on the stream of a request with nobody to listen would be lost: it waits for a GET stream.
        streams = request.listens and ("text/event-stream" in accept or "*/*" in accept)
        head = LocalHead(era, fields, request.caller, streams, request)
        if era is Era.LEGACY:
            return self._legacy(head, message, envelope, read_timeout)
        if isinstance(envelope, Batch) or envelope.kind is Kind.RESPONSE:
            raise BadRequest("In this protocol version a body must be one request or notification.")
        if envelope.kind is Kind.NOTIFICATION:
            # The modern era has none for a server; a call is cancelled by the end of its stream.
            return _at_once(WholeReply(202))
        params = _params(None, body) if message is None else message.get("params")
        return self._answer(LocalRequest(envelope, params, head), read_timeout)

    def _legacy(
        self, head: LocalHead, message: Any, envelope: Envelope | Batch, read_timeout: float | None
    ) -> _Awaited:
        if (
            isinstance(envelope, Envelope)
            and envelope.method == "initialize"
            and envelope.kind is Kind.REQUEST
        ):
            params = _params(message, envelope.body)
            opening = LocalRequest(envelope, params, head._replace(streams=False))
            return self._answer(opening, read_timeout)
        session = self.server.sessions.find(head.fields.get("mcp-session-id"))
        version = head.fields.get("mcp-protocol-version")
        # A bridge may have agreed to a version that nobody here knows.
        if version is not None and version not in (session.version, *LEGACY_VERSIONS):
            raise BadRequest(f"MCP-Protocol-Version must be one of {', '.join(LEGACY_VERSIONS)}.")
        if isinstance(envelope, Batch):
            members = parse(envelope.body) if message is None else message
            return self._batch(head, members, envelope, session, read_timeout)
        if envelope.kind is not Kind.REQUEST:
            return self._observe(head, envelope, message, session)
        request = LocalRequest(envelope, None if message is None else message.get("params"), head, session)
        return self._answer(request, read_timeout)

    async def _batch(
        self,
        head: LocalHead,
        messages: list[Any],
        batch: Batch,
        session: LocalSession,
        read_timeout: float | None,
    ) -> UpstreamReply:
        """Answer all members at once; a batch is answered whole, so none of them gets a stream."""
        if session.version != BATCH_VERSION:
            raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
        head = head._replace(streams=False)
        requests = []
        for member, message in zip(batch.members, messages, strict=True):
            if member.kind is Kind.REQUEST:
                requests.append(LocalRequest(member, message.get("params"), head, session))
            else:
                await self._observe(head, member, message, session)
        replies = await asyncio.gather(*(self._member(request, read_timeout) for request in requests))
        bodies = [reply.whole for reply in replies if reply.whole]
        return WholeReply(200, JSON, b"[" + b",".join(bodies) + b"]") if bodies else WholeReply(202)

    async def _member(self, request: LocalRequest, read_timeout: float | None) -> UpstreamReply:
        return await self._answer(request, read_timeout)

    def _answer(self, request: LocalRequest, read_timeout: float | None) -> _Awaited:
        answer = self._begin(request)
        if isinstance(answer, LocalAnswer):
            return _at_once(whole(answer))
        if isinstance(answer, EventStream):
            return _at_once(answer)
        if request.session is not None and request.envelope.id is not None:
            request.session.expect(request.envelope.id, answer)
        return answer.head(read_timeout, self._deadlines)

    def _begin(self, request: LocalRequest) -> LocalAnswer | PendingReply | EventStream:
        era = request.head.era
        try:
            if era is Era.MODERN:
                _check_modern(request)
            return self.server.answer(request)
        except RpcRefused as refused:
            return refusal(request.id_bytes, refused.code, str(refused), refused.data, era)
        except HeaderMismatch as error:
            return refusal(request.id_bytes, error.rpc, str(error), error.data, era)

    async def _observe(
        self, head: LocalHead, envelope: Envelope, message: dict[str, Any] | None, session: LocalSession
    ) -> UpstreamReply:
        if envelope.method == "notifications/cancelled":
            params = _params(message, envelope.body)
            number = params.get("requestId") if isinstance(params, dict) else None
            # True is 1 to a dict, but not to JSON.
            if isinstance(number, str | int | float) and not isinstance(number, bool):
                session.withdraw(number)
        await self.server.observe(envelope, session, head)
        return WholeReply(202)

    # --- GET and DELETE ---------------------------------------------------------------------------------------

    def _get_or_delete(self, method: str, fields: Fields) -> UpstreamReply:
        version = fields.get("mcp-protocol-version")
        if version is not None and is_modern(version):
            return WholeReply(405, [("Allow", "POST")])
        if method not in ("GET", "DELETE"):
            return WholeReply(405, [("Allow", "GET, POST, DELETE")])
        session = self.server.sessions.find(fields.get("mcp-session-id"))
        if method == "GET":
            return session.listen(fields.get("last-event-id"))
        session.end()
        return WholeReply(200)


def _fields(headers: Headers) -> Fields:
    """The fields by their name, found once for a head that many requests have."""
    if type(headers) is not SharedFields:
        return fields_of(headers)
    found: Fields | None = headers.derived.get(_fields)
    if found is None:
        found = headers.derived[_fields] = fields_of(headers)
    return found


def _params(message: dict[str, Any] | None, body: bytes) -> Any:
    """The ``params`` of a message, which is parsed where it was not before."""
    return (parse(body) if message is None else message).get("params")


async def _at_once(reply: UpstreamReply) -> UpstreamReply:
    """A reply that needs no waiting, in the form of the others."""
    return reply


def _check_modern(request: LocalRequest) -> None:
    """Check for what every request of MCP 2026-07-28 carries. Raises RpcRefused, HeaderMismatch."""
    meta, fields = request.meta, request.head.fields
    if VERSION_KEY not in meta or CAPABILITIES_KEY not in meta:
        missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
        raise RpcRefused(INVALID_PARAMS, f"params._meta is missing {' and '.join(missing)}.")
    check_mirrors(
        request.envelope,
        version=fields.get("mcp-protocol-version"),
        method=fields.get("mcp-method"),
        name=fields.get("mcp-name"),
    )


def _refused(error: AdapterError) -> WholeReply:
    """The reply to a request that is refused as HTTP, with the catalogue's code and status."""
    return WholeReply(error.http, JSON, failure(error))


def _decoded(body: bytes, fields: Fields) -> bytes:
    """The body without its coding. The edge in front has read it and so knows how large it becomes."""
    coding = fields.get("content-encoding")
    if coding is None:
        return body
    coding = (coding or "identity").strip().lower()
    if coding == "identity":
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedMediaType()
    try:
        return zlib.decompress(body, _GZIP_OR_ZLIB)
    except zlib.error:
        raise BadRequest("The body does not match its Content-Encoding.") from None
