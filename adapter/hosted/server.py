"""Tools of the adapter's own as one more upstream: an MCP server in process, behind the port of any other.

The relay in front sees what it would see of a server over streamable HTTP: sessions, statuses, streams, both eras.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import (
    BadJson,
    BadRequest,
    HeaderMismatch,
    SessionMissing,
    SessionUnknown,
    UnsupportedMediaType,
    UpstreamUnreachable,
)
from adapter.hosted import answers
from adapter.hosted.answers import JSON, LEGACY_VERSIONS, WholeReply, refused_whole
from adapter.hosted.calls import RunningCall
from adapter.hosted.methods import Incoming, Methods, Served
from adapter.hosted.sessions import HostedSession, HostedSessions
from adapter.hosted.tools import HostedTool
from adapter.rules.access.principals import Caller
from adapter.upstream.port import Fields, UpstreamReply, UpstreamRequest, fields_of
from adapter.wire.envelope import Batch, Envelope, Kind, envelope_of, parse
from adapter.wire.eras import Era, classify, is_modern

BATCH_VERSION = "2025-03-26"
"""The one protocol version that has JSON-RPC batches."""

CLOSE_PATIENCE = 2.0
"""Seconds that tools get to end when the server closes."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_REFUSED = (BadJson, BadRequest, HeaderMismatch, SessionMissing, SessionUnknown, UnsupportedMediaType)


class HostedUpstream:
    """An Upstream that serves ``tools`` under the name and version it is given.

    ``unknown_tool_code`` is the JSON-RPC error for a name it does not know. ``page`` is how many tools
    ``tools/list`` shows at once, ``sessions`` how many legacy sessions live at most.
    """

    def __init__(
        self,
        tools: Iterable[HostedTool],
        *,
        name: str,
        version: str,
        log: FilteringBoundLogger,
        instructions: str | None = None,
        unknown_tool_code: int = answers.METHOD_NOT_FOUND,
        page: int = 100,
        sessions: int = 10_000,
    ) -> None:
        self._methods = Methods(
            Served(name, version, instructions, unknown_tool_code, page), log, self._call_over
        )
        self._methods.offer(tools)
        self._sessions = HostedSessions(sessions)
        self._running: set[RunningCall] = set()
        self._closed = False

    def __repr__(self) -> str:
        served = self._methods.served.name
        return f"<HostedUpstream {served!r}: {len(self._sessions)} sessions, {self.running} calls running>"

    @property
    def running(self) -> int:
        """Calls whose tool has not ended, also those nobody waits for any more."""
        return len(self._running)

    def offer(self, tools: Iterable[HostedTool]) -> None:
        """Serve these tools from now on, and tell whoever listens if a client would see a difference."""
        if self._methods.offer(tools):
            for session in self._sessions.all():
                session.say(answers.notification("notifications/tools/list_changed"))
            self._methods.subscriptions.tools_changed()

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Raises UpstreamSilent for a tool that says nothing for ``read_timeout`` seconds."""
        if self._closed:
            raise UpstreamUnreachable()
        try:
            if request.method == "POST":
                return await self._post(request, read_timeout)
            return self._stand_by(request.method, fields_of(request.headers))
        except _REFUSED as error:
            return refused_whole(error)

    async def close(self) -> None:
        """Cancel every call, end every stream, and give the tools a moment to end."""
        self._closed = True
        self._methods.subscriptions.close()
        for session in self._sessions.all():
            self._sessions.end(session)
        ending = [asyncio.ensure_future(call.ended()) for call in self._running]
        for call in list(self._running):
            call.cancel()
        if ending:
            _, late = await asyncio.wait(ending, timeout=CLOSE_PATIENCE)
            for task in late:
                task.cancel()

    # --- POST -------------------------------------------------------------------------------------------------

    async def _post(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        head = _Head(fields_of(request.headers), request.caller)
        body = _plain(request.body, head.fields)
        message = parse(body)
        envelope = envelope_of(message, body)
        version = head.fields.get("mcp-protocol-version")
        if classify(version, envelope) is Era.LEGACY:
            return await self._legacy(head, message, envelope, version, read_timeout)
        if isinstance(envelope, Batch) or envelope.kind is Kind.RESPONSE:
            raise BadRequest("In this protocol version a body must be one request or notification.")
        if envelope.kind is Kind.NOTIFICATION:
            # The modern era has none for a server; a call is cancelled by the end of its stream.
            return WholeReply(202)
        incoming = _incoming(envelope, message, head, Era.MODERN, None)
        return await self._answer(incoming, read_timeout)

    async def _legacy(
        self,
        head: _Head,
        message: Any,
        envelope: Envelope | Batch,
        version: str | None,
        read_timeout: float | None,
    ) -> UpstreamReply:
        if isinstance(envelope, Envelope) and _opens(envelope):
            return self._open(_incoming(envelope, message, head, Era.LEGACY, None))
        session = self._sessions.find(head.fields.get("mcp-session-id"))
        if version is not None and version not in LEGACY_VERSIONS:
            raise BadRequest(f"MCP-Protocol-Version must be one of {', '.join(LEGACY_VERSIONS)}.")
        if isinstance(envelope, Batch):
            if session.version != BATCH_VERSION:
                raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
            return await self._batch(head, message, envelope, session, read_timeout)
        if envelope.kind is not Kind.REQUEST:
            _observe(envelope, message, session)
            return WholeReply(202)
        return await self._answer(_incoming(envelope, message, head, Era.LEGACY, session), read_timeout)

    def _open(self, incoming: Incoming) -> UpstreamReply:
        said, opened = self._methods.initialize(incoming)
        if opened is None:
            return WholeReply(said.status, JSON, said.body)
        session = self._sessions.open(opened.version, opened.capabilities)
        return WholeReply(said.status, [*JSON, ("Mcp-Session-Id", session.id)], said.body)

    async def _batch(
        self,
        head: _Head,
        messages: list[Any],
        batch: Batch,
        session: HostedSession,
        read_timeout: float | None,
    ) -> UpstreamReply:
        """All members at once; a batch is answered whole, so nobody hears of its calls' progress."""
        waited = []
        for member, message in zip(batch.members, messages, strict=True):
            if member.kind is Kind.REQUEST:
                incoming = _incoming(member, message, head, Era.LEGACY, session)
                incoming.streams = False
                waited.append(self._answer(incoming, read_timeout))
            else:
                _observe(member, message, session)
        replies = await asyncio.gather(*waited)
        said = [reply.whole for reply in replies if reply.whole]
        return WholeReply(200, JSON, b"[" + b",".join(said) + b"]") if said else WholeReply(202)

    async def _answer(self, incoming: Incoming, read_timeout: float | None) -> UpstreamReply:
        said = self._methods.answer(incoming)
        if isinstance(said, RunningCall):
            self._running.add(said)
            return await said.head(read_timeout)
        if isinstance(said, answers.HostedAnswer):
            return WholeReply(said.status, JSON, said.body)
        return said

    def _call_over(self, call: RunningCall) -> None:
        self._running.discard(call)

    # --- GET and DELETE ---------------------------------------------------------------------------------------

    def _stand_by(self, method: str, headers: Fields) -> UpstreamReply:
        version = headers.get("mcp-protocol-version")
        if version is not None and is_modern(version):
            return WholeReply(405, [("Allow", "POST")])
        if method not in ("GET", "DELETE"):
            return WholeReply(405, [("Allow", "GET, POST, DELETE")])
        session = self._sessions.find(headers.get("mcp-session-id"))
        if method == "GET":
            return session.listen()
        self._sessions.end(session)
        return WholeReply(200)


class _Head(NamedTuple):
    """What a request says beside its body, and who made it."""

    fields: Fields
    caller: Caller


def _incoming(
    envelope: Envelope, message: dict[str, Any], head: _Head, era: Era, session: HostedSession | None
) -> Incoming:
    accept = (head.fields.get("accept") or "").lower()
    return Incoming(
        envelope,
        message.get("params"),
        head.fields,
        era,
        session,
        streams="text/event-stream" in accept or "*/*" in accept,
        caller=head.caller,
    )


def _opens(envelope: Envelope) -> bool:
    return envelope.method == "initialize" and envelope.kind is Kind.REQUEST


def _observe(envelope: Envelope, message: dict[str, Any], session: HostedSession) -> None:
    """A notification or response of a legacy client; only a cancellation means anything here."""
    if envelope.method != "notifications/cancelled":
        return
    params = message.get("params")
    number = params.get("requestId") if isinstance(params, dict) else None
    # True is 1 to a dict, but not to JSON.
    if isinstance(number, str | int | float) and not isinstance(number, bool):
        call = session.calls.get(number)
        if call is not None:
            call.withdraw()


def _plain(body: bytes, headers: Fields) -> bytes:
    """The body without its coding. The edge in front has read it and so knows how large it becomes."""
    coding = (headers.get("content-encoding") or "identity").strip().lower()
    if coding == "identity":
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedMediaType()
    try:
        return zlib.decompress(body, _GZIP_OR_ZLIB)
    except zlib.error:
        raise BadRequest("The body does not match its Content-Encoding.") from None
