"""The only reader of a client's request: its headers, and its body up to the limit."""

from __future__ import annotations

import asyncio
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

from adapter.edge.http.access import Bases
from adapter.edge.http.bodies import SMALL, Body
from adapter.edge.http.request import Fields, Request
from adapter.errors import BadRequest, MessageTooLong, UnsupportedMediaType
from adapter.relay.exchange import ClientRequest, Sender
from adapter.relay.server import Server
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.principals import Caller, Identity, party_of
from adapter.wire.envelope import Batch, Envelope, Kind, read_envelope
from adapter.wire.eras import LEGACY, Era, check_mirrors, classify
from adapter.wire.scan import has_more_values, values_at_most
from adapter.wire.signed_urls import forwardable_query

READ_AT_ONCE = 10_000
"""Values of a message that is read between two turns of the loop: the least convenient takes 20 ms."""

TURN = 0.0005
"""Seconds after which the thread that reads lets the loop go on. By default it is ten times as long, and the loop waits
that long for each of its sockets."""

_LONG = 17 << 16
"""Bytes of a message that is read between two turns, however few values it has: a mebibyte and what is around it."""

MOST_VALUES = 200_000
"""Values of one body, those in arrays and objects among them: each takes time to parse."""

MOST_MEMBERS = 100
"""Messages of one batch: each is checked by itself."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_UTF8 = frozenset(("utf-8", "utf8", "us-ascii", "ascii"))

_VERSION_FIELD = "mcp-protocol-version"


class Ingress:
    """``max_bytes`` is ``core.max_request_bytes``: of the body as sent, and of what it decompresses to."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # One thread for all: more of them would only take the loop's turns.
        self._reading = ThreadPoolExecutor(1, "reading")

    async def read_body(self, request: Request) -> bytes:
        """The body as it was sent. Raises MessageTooLong, before reading where its length says so, and what the body
        raises.
        """
        body = request.body
        if body.complete:
            return self.take_body(body)
        if body.announced is not None and body.announced > self._max_bytes:
            raise self._too_long()
        body.count()
        return await body.whole(self._max_bytes, self._too_long)

    def take_body(self, body: Body) -> bytes:
        """A body that has come to its end. Raises as ``read_body``."""
        if body.size > self._max_bytes:
            raise self._too_long()
        if body.size > SMALL:
            body.count()
            body.require_room()
        return body.take()

    def plain(self, body: bytes, request: Request) -> tuple[bytes, bool]:
        """The body as text, and whether that took decompressing. Raises UnsupportedMediaType, MessageTooLong and
        BuffersFull.
        """
        named = request.headers.lower.get("content-encoding")
        if named is None or (coding := named.strip().lower()) == "identity":
            return body, False
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise UnsupportedMediaType()
        inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            text = inflater.decompress(body, self._max_bytes + 1)
        except zlib.error:
            raise BadRequest("The body does not match its Content-Encoding.") from None
        if len(text) > self._max_bytes:
            raise self._too_long()
        # What stands behind the end is not read here, but an upstream might: nobody is to see another message.
        if not inflater.eof or inflater.unused_data:
            raise BadRequest("The compressed body is not exactly one complete stream.")
        request.body.count(len(text))
        request.body.require_room()
        return text, True

    def read_message(self, text: bytes, era: Era) -> tuple[Envelope | Batch, Era]:
        """The message and its era, where ``era`` is that of its head. Raises BadJson, BadRequest."""
        envelope = read_envelope(text, MOST_MEMBERS)
        return envelope, classify(None, envelope) if era is LEGACY else era

    async def read_dense(self, text: bytes, era: Era) -> tuple[Envelope | Batch, Era]:
        """The same for a text that may hold many values; a long or dense one is read in a thread."""
        if len(text) <= _LONG and values_at_most(text) <= READ_AT_ONCE:
            return self.read_message(text, era)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, self._weighed, text, era)

    def _weighed(self, text: bytes, era: Era) -> tuple[Envelope | Batch, Era]:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(TURN)
        try:
            if has_more_values(text, MOST_VALUES):
                raise BadRequest(f"The message has more than {MOST_VALUES} values.")
            return self.read_message(text, era)
        finally:
            sys.setswitchinterval(usual)

    def _too_long(self) -> MessageTooLong:
        return MessageTooLong(
            f"The body is larger than the {self._max_bytes} bytes that core.max_request_bytes allows."
        )


def era_of_head(request: Request) -> Era:
    """The era as far as the headers alone tell it."""
    shared = request.headers.shared
    era: Era | None = shared.get(_VERSION_FIELD)
    if era is None:
        era = shared[_VERSION_FIELD] = classify(request.headers.lower.get(_VERSION_FIELD), None)
    return era


def check_head(envelope: Envelope | Batch, request: Request) -> None:
    """Raises HeaderMismatch where a modern message and its headers disagree (MCP 2026-07-28)."""
    if isinstance(envelope, Envelope):
        fields = request.headers.lower
        check_mirrors(
            envelope,
            version=fields.get(_VERSION_FIELD),
            method=fields.get("mcp-method"),
            name=fields.get("mcp-name"),
        )


def id_of(envelope: Envelope | Batch) -> bytes | None:
    """The id that an error is sent under, as it was spelled; None if nothing waits for an answer."""
    if isinstance(envelope, Envelope):
        return envelope.id_bytes if envelope.kind is Kind.REQUEST else None
    return b"null" if any(member.kind is Kind.REQUEST for member in envelope.members) else None


def ask_of(request: Request, server: Server, era: Era, identity: Identity, bases: Bases) -> ClientRequest:
    """The request of ``identity`` as the relay takes it, without its message. Raises BadRequest for a required
    header.
    """
    headers = request.headers
    # Requests on one connection share a head as long as it stays the same.
    key = server.id, era, request.method
    known: tuple[Sender, list[tuple[str, str]]] | None = headers.derived.get(key)
    if known is None:
        fields = headers.lower
        caller = Caller(
            identity.principal, "mcp", fields, identity.withheld, identity.scopes, identity.claims
        )
        sender = Sender(
            era=era,
            principal=identity.principal,
            session_id=fields.get("mcp-session-id") if era is LEGACY else None,
            version=fields.get(_VERSION_FIELD),
            last_event_id=fields.get("last-event-id"),
            caller=caller,
            base=bases.of(request) if request.method == "POST" and not server.stages.empty else "",
            party=party_of(caller) if server.apart else "",
        )
        # The session id is none of the fields that travel, so they are those of every session.
        if (forwarded := headers.shared.get(key)) is None:
            forwarded = headers.shared[key] = SharedFields(_forwarded(headers, server, identity.withheld))
        known = headers.derived[key] = sender, forwarded
    query = forwardable_query(request.target.partition("?")[2]) if "?" in request.target else ""
    sender, forwarded = known
    return ClientRequest(server, request.method, sender, forwarded, query)


def _forwarded(headers: Fields, server: Server, withhold: frozenset[str]) -> list[tuple[str, str]]:
    passed = server.rules.passed(headers.pairs, withhold)
    if server.stages.guards:
        _require_one_reading(headers)
    return passed


def _require_one_reading(headers: Fields) -> None:
    """Raise UnsupportedMediaType if the head allows another reading of the body than the one here."""
    named = [(name.lower(), value) for name, value in headers.pairs]
    types = [value for name, value in named if name == "content-type"]
    codings = [value for name, value in named if name == "content-encoding"]
    if len(types) > 1 or len(codings) > 1 or not all(map(_is_utf8, types)):
        raise UnsupportedMediaType(
            "The adapter checks calls of this server: send JSON in UTF-8, with at most one Content-Type "
            "and one Content-Encoding."
        )


def _is_utf8(content_type: str) -> bool:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower().startswith("charset") and value.strip(' \t"').lower() not in _UTF8:
            return False
    return True
