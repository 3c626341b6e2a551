"""A client's bytes as requests: httptools reads them, and here is refused what it lets pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import httptools

from adapter.edge.http.bodies import Body, BodyLimits
from adapter.edge.http.request import COMMON_AT_MOST, CommonHeads, Fields, HeadKey, KnownHead, RequestHead
from adapter.relay.background import nothing
from adapter.rules.access.host_and_origin_check import same_authority
from adapter.wire.repeated_head import LONGEST, RepeatedHead

HEAD_LIMIT = 32 * 1024
"""Bytes of a request's head; more is 431. Also of chunk extensions or trailers without any body between."""

_LENGTH_NAME = len(b"content-length")
assert len(b"mcp-session-id") == _LENGTH_NAME, "both names are looked for among those of one length"
_FRAMING_OF_FIELD = 4
"""The colon, the space and the line end of a field."""

_REPEATING = ("POST", "GET", "DELETE")
"""Methods whose requests are recognized by their heads: those of calls and of sessions."""

KNOWN_AT_MOST = 4
"""Heads of a connection that are remembered: the beginning, the calls and the end of sessions, and one more."""

_AUTHORITY_END = re.compile(r"[/?#]")


class Refusal(Exception):
    """The bytes are no request that could be served: ``status`` and the reason for the client."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class RequestStream:
    """``arrive`` gets each request as soon as its head is complete; its body follows. ``resume`` and ``terms`` are
    Body's. ``common`` are the heads that came last on all connections: one of them need not come twice here.
    """

    def __init__(
        self,
        arrive: Callable[[RequestHead, Body], None],
        resume: Callable[[], None],
        terms: BodyLimits,
        common: CommonHeads | None = None,
    ) -> None:
        self.ended = False
        """Nothing that comes now is a request any more."""
        self.body: Body | None = None
        """The body that is still arriving."""
        self.in_head = False
        """A head has begun and has not come to its end."""
        self.heads = 0
        """Number of heads that have begun."""
        self._terms = terms
        self._common = CommonHeads(COMMON_AT_MOST) if common is None else common
        self._arrive = arrive
        self._resume = resume
        self._parser: Any = httptools.HttpRequestParser(self)
        self._target = b""
        self._raw: list[tuple[bytes, bytes]] = []
        self._length: int | None = None
        self._session: bytes | None = None
        self._kind = "", b"", False
        self._known: dict[tuple[str, bytes, bool], KnownHead] = {}
        """The last heads, by their methods, by the paths of all but GET, and by whether they name a session."""
        self._fields = Fields([])
        self._head: RequestHead | None = None
        self._repeated: RepeatedHead | None = None
        """The bytes of ``_head``, if the next request may be recognized by them."""
        self._came_before = False
        """The fields are those of an earlier request, but for the session id."""
        self._head_size = 0
        self._formless = 0
        self._upgrading = False
        self._replaying = False

    def feed(self, data: bytes) -> bool:
        """Read the next bytes of the connection. Returns True if they are known to be one whole request. Raises
        Refusal.
        """
        between = self.body is None and not self.in_head
        if between:
            content, repeated = None, self._repeated
            if repeated is not None and data.startswith(repeated.before):
                content = repeated.body_of(data)
            if content is None:
                content = self._recognized(data)
            if content is not None:
                self._formless = 0
                self.heads += 1
                assert self._head is not None
                self._arrive(self._head, Body(self._resume, self._terms, len(content), content))
                return True
        # Starts anew with every step forward, so up to one read more than the limit may come; but never two.
        self._formless += len(data)
        try:
            heads = self.heads
            self._feed(data)
            if between and self.heads == heads + 1:
                self._learn(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refusal):
                raise error.__context__ from None
            raise Refusal(400, "this is not valid HTTP/1.1 (RFC 9112)") from error
        if self._formless > HEAD_LIMIT:
            if self.in_head:
                raise _head_too_large()
            if self.body is not None:
                raise Refusal(400, "the framing of the body is too large")
        return False

    def _recognized(self, data: bytes) -> bytes | None:
        """The body of a request whose head came before, and that head for ``_head``; None for any other."""
        # To compare a head whose body comes in a packet of its own would be in vain.
        only_head = data.endswith(b"\r\n\r\n")
        others: Iterable[KnownHead] = ()
        # Heads of later calls are known here by then, or change each time.
        if self.heads < KNOWN_AT_MOST or data.startswith(b"DELETE"):
            others = self._common.values.values()
        for known in chain(self._known.values(), others):
            # Most differ in their first bytes, and to see that takes no call of Python.
            if not data.startswith(known.before):
                continue
            if only_head and known.repeated is not None and known.repeated.after is not None:
                continue
            if self._known.get(known.key.kind) is not known:
                known = known.again()
            if (content := known.body_in(data)) is not None:
                self._keep(known)
                self._head, self._repeated = known.head, known.repeated
                return content
        return None

    def _keep(self, known: KnownHead) -> None:
        kind = known.key.kind
        # A stream that is held needs none of the others, and there may be very many of those.
        if kind not in self._known and (kind[0] == "GET" or len(self._known) >= KNOWN_AT_MOST):
            self._known.clear()
        self._known[kind] = known

    def _learn(self, data: bytes) -> None:
        """Remember the head of a request that came in one piece and has the fields of one before."""
        head = self._head
        if not self._came_before or head is None or head.method not in _REPEATING:
            return
        if not head.modern or not head.keep or head.expects_continue or "upgrade" in head.fields.lower:
            return
        if self.body is None and not self.in_head and (self._length is None) is head.bodiless:
            known = self._known[self._kind]
            known.learn(head, data)
            self._common.put(known.key, known)
            self._repeated = known.repeated

    def close(self, failure: Callable[[], Exception]) -> None:
        """End the stream: the reader of a body that is still arriving raises ``failure()``.

        Lets go of parser and connection, which refer to this stream as it refers to them.
        """
        if self.body is not None:
            self.body.fail(failure)
        self.body = self._parser = None
        self._arrive = self._resume = nothing

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stop:
                if not self._upgrading:
                    # CONNECT: what follows would be for the tunnel.
                    self.ended = True
                    return
                data = data[stop.args[0] :]
                self._read_on_without_upgrade()

    def _read_on_without_upgrade(self) -> None:
        """An offer to change the protocol may be ignored (RFC 9110, 7.8), but the parser stops at it.

        Another one reads on, and is told how the body is framed.
        """
        self._upgrading = False
        coding = self._fields.get("transfer-encoding")
        framing = [] if coding is None else [f"Transfer-Encoding: {coding}"]
        if self._length is not None:
            framing.append(f"Content-Length: {self._length}")
        self._replace_parser(framing)

    def read_on(self, left: int) -> None:
        """Go on where ``left`` bytes of the body are still to come; those before were read by somebody else."""
        if self.body is not None and self._head is not None:
            # What comes behind the last request of a connection stays no request.
            option = "keep-alive" if self._head.keep else "close"
            self._replace_parser([f"Connection: {option}", f"Content-Length: {left}"])

    def _replace_parser(self, framing: list[str]) -> None:
        """Read on with a new parser, in a body that is framed by these fields."""
        self._parser = httptools.HttpRequestParser(self)
        self._replaying = True
        head = "\r\n".join(["POST / HTTP/1.1", *framing, "", ""])
        self._parser.feed_data(head.encode("latin-1"))
        self._replaying = False

    # --- what the parser says -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        self._target = b""
        self._raw = []
        self._length = self._session = None
        self.in_head = True
        self.heads += 1
        self._head_size = self._formless = 0

    def on_url(self, url: bytes) -> None:
        if not self._replaying:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer is no header: it comes after everything was decided (RFC 9110, 6.5.1).
        if not self.in_head:
            return
        self._head_size += len(name) + len(value) + _FRAMING_OF_FIELD
        if len(name) == _LENGTH_NAME:
            lower = name.lower()
            if lower == b"content-length":
                self._length = int(value)
                return
            if lower == b"mcp-session-id" and self._session is None:
                self._session, value = value, b""
        self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        if self._replaying:
            return
        self.in_head = False
        self._formless = 0
        if self._head_size + len(self._target) > HEAD_LIMIT:
            raise _head_too_large()
        version = self._parser.get_http_version()
        self._fields = self._fields_of_head(version)
        if not self._target.startswith(b"/"):
            _check_target(self._target.decode("latin-1"), self._fields)
        body = Body(self._resume, self._terms, self._length)
        self._repeated = None
        head = self._head = RequestHead(self._parser, version, self._target, self._fields)
        self._upgrading = self._parser.should_upgrade() and head.method != "CONNECT"
        self._arrive(head, body)
        self.body = body

    def _fields_of_head(self, version: str) -> Fields:
        """The fields that have come: those of an earlier request, if they are the same. Raises Refusal."""
        method = self._parser.get_method().decode("latin-1")
        path = b"" if method == "GET" else self._target.partition(b"?")[0]
        kind = self._kind = method, path, bool(self._session and self._session.strip())
        key, known = HeadKey(kind, version, tuple(self._raw)), self._known.get(kind)
        # A head that changes from request to request would drive out those that others have too.
        is_common = known is None and self._head_size <= LONGEST
        if known is None or known.key != key:
            found = self._common.get(key) if is_common else None
            known = None if found is None else found.again()
        self._came_before = known is not None
        if known is None:
            known = KnownHead(key, self._session)
            # A refusal ends the connection's reading, so what is remembered has passed the check.
            _check_head(known.fields, version)
            if is_common:
                self._common.put(key, known)
        self._keep(known)
        known.enter(self._session)
        return known.fields

    def on_body(self, chunk: bytes) -> None:
        assert self.body is not None
        self._formless = 0
        self.body.add(chunk)

    def on_message_complete(self) -> None:
        if self.body is not None and not self._upgrading:
            self.body.end()
            self.body = None


def _check_head(fields: Fields, version: str) -> None:
    if version not in ("1.1", "1.0"):
        raise Refusal(505, "only HTTP/1.1 and HTTP/1.0 are served")
    if not fields.repeated.isdisjoint(("host", "transfer-encoding")):
        raise Refusal(400, "Host and Transfer-Encoding may occur only once")
    if version == "1.1" and "host" not in fields:
        raise Refusal(400, "Host is missing")
    if fields.get("transfer-encoding", "chunked").lower() != "chunked":
        raise Refusal(501, "the only supported transfer coding is chunked")


def _check_target(target: str, fields: Fields) -> None:
    """Raises Refusal for an absolute target that is another authority's than the Host's (RFC 9112, 3.2.2)."""
    scheme, separator, rest = target.partition("://")
    host = fields.get("host")
    if separator and host is not None and not same_authority(scheme, _AUTHORITY_END.split(rest, 1)[0], host):
        raise Refusal(421, "the request's target and its Host name different authorities")


def _head_too_large() -> Refusal:
    return Refusal(431, "the head of the request is too large")
