"""The only reader of a client's request: its headers, and its body up to the limit."""

from __future__ import annotations

import zlib

from adapter.edge.bodies import SMALL, Body
from adapter.edge.request import Fields, Request
from adapter.errors import BadRequest, MessageTooLong, UnsupportedMediaType
from adapter.relay.exchange import Ask
from adapter.relay.server import Server
from adapter.rules.callers import Caller
from adapter.rules.headers import missing, to_upstream
from adapter.wire.envelope import Batch, Envelope, Kind, read_envelope
from adapter.wire.eras import Era, check_mirrors, classify
from adapter.wire.queries import forwardable_query

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class Ingress:
    """``max_bytes`` is ``core.max_request_bytes``: of the body as sent, and of what it decompresses to."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    async def read_body(self, request: Request) -> bytes:
        """The body as it was sent. Raises MessageTooLong, before reading where its length says so, and what the body
        raises.
        """
        if request.length is not None and request.length > self._max_bytes:
            raise self._too_long()
        body = request.body
        if not body.complete:
            return await self._read_on(body)
        if body.size > self._max_bytes:
            raise self._too_long()
        if body.size > SMALL:
            body.count()
            body.require_room()
        return body.take()

    async def _read_on(self, body: Body) -> bytes:
        body.count()
        chunks: list[bytes] = []
        size = 0
        while chunk := await body.read():
            size += len(chunk)
            if size > self._max_bytes:
                raise self._too_long()
            chunks.append(chunk)
        return b"".join(chunks)

    def plain(self, body: bytes, request: Request) -> tuple[bytes, bool]:
        """The body as text, and whether that took decompressing. Raises UnsupportedMediaType, MessageTooLong and
        BuffersFull.
        """
        coding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if coding == "identity":
            return body, False
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise UnsupportedMediaType()
        inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            text = inflater.decompress(body, self._max_bytes + 1)
        except zlib.error:
            raise BadRequest("The body is not what its Content-Encoding says.") from None
        if len(text) > self._max_bytes:
            raise self._too_long()
        # What stands behind the end is not read here, but an upstream might: nobody is to see another message.
        if not inflater.eof or inflater.unused_data:
            raise BadRequest("The compressed body is not exactly one complete stream.")
        request.body.count(len(text))
        request.body.require_room()
        return text, True

    def _too_long(self) -> MessageTooLong:
        return MessageTooLong(
            f"The body is larger than the {self._max_bytes} bytes that core.max_request_bytes allows."
        )


def era_of_head(request: Request) -> Era:
    """The era as far as the headers alone tell it."""
    return classify(request.headers.get("MCP-Protocol-Version"), None)


def read_message(text: bytes, request: Request) -> tuple[Envelope | Batch, Era]:
    """The message and its era. Raises BadJson, BadRequest."""
    envelope = read_envelope(text)
    return envelope, classify(request.headers.get("MCP-Protocol-Version"), envelope)


def check_head(envelope: Envelope | Batch, request: Request) -> None:
    """Raises HeaderMismatch where a modern message and its headers disagree (MCP 2026-07-28)."""
    if isinstance(envelope, Envelope):
        headers = request.headers
        check_mirrors(
            envelope,
            version=headers.get("MCP-Protocol-Version"),
            method=headers.get("Mcp-Method"),
            name=headers.get("Mcp-Name"),
        )


def id_of(envelope: Envelope | Batch) -> bytes | None:
    """The id that an error is sent under, as it was spelled; None if nothing waits for an answer."""
    if isinstance(envelope, Envelope):
        return envelope.id_bytes if envelope.kind is Kind.REQUEST else None
    return b"null" if any(member.kind is Kind.REQUEST for member in envelope.members) else None


def ask_of(request: Request, server: Server, *, era: Era, principal: str, withhold: frozenset[str]) -> Ask:
    """The request as the relay takes it, without its message. Raises BadRequest for a required header."""
    headers = request.headers
    forwarded = headers.derived.get(server.id)
    if forwarded is None:
        forwarded = headers.derived[server.id] = _forwarded(headers, server, withhold)
    return Ask(
        server=server,
        method=request.method,
        era=era,
        principal=principal,
        headers=forwarded,
        session_id=headers.get("Mcp-Session-Id") if era is Era.LEGACY else None,
        last_event_id=headers.get("Last-Event-ID"),
        version=headers.get("MCP-Protocol-Version"),
        caller=Caller(principal, "mcp", headers.lower),
        query=forwardable_query(query) if (query := request.target.partition("?")[2]) else "",
    )


def _forwarded(headers: Fields, server: Server, withhold: frozenset[str]) -> list[tuple[str, str]]:
    absent = missing(server.required, headers.pairs)
    if absent is not None:
        raise BadRequest(f"This server needs the header {absent} with every request.")
    return to_upstream(headers.pairs, passthrough=server.passthrough, static=server.static, withhold=withhold)
