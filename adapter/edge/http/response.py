"""The answer to one request on its client's connection: status line, fields and the framing of the body.

``send`` and ``CallStream`` write the answers of the adapter's own APIs: JSON as a whole, or a stream of events.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from adapter.edge.http.bodies import Body, ClientGone, until_ready
from adapter.edge.http.request import Request, Sendable
from adapter.errors import AdapterError, Unauthorized
from adapter.rules.access.headers import SharedFields
from adapter.wire.envelope import dump
from adapter.wire.repeated_head import BODILESS, content_length

if TYPE_CHECKING:
    # Only the tool HTTP API and the console have such answers.
    from adapter.rules.calls.tool_api import HttpOutcome

AT_ONCE = 4 * 1024 * 1024
"""Bytes for which one hop to a thread costs nothing that shows beside sending them."""


async def send_file(
    transport: asyncio.Transport,
    drained: Callable[[], Awaitable[None]],
    file: Sendable,
    offset: int,
    length: int,
    stall: float,
) -> None:
    """Send ``length`` bytes of a file behind what was written to ``transport`` before.

    Waits while the client is slow. Raises ClientGone, also for one that takes nothing for ``stall`` seconds, and
    StorageFailed.
    """
    await _emptied(transport, drained)
    # One of our own: the transport's number is the loop's to watch, and another socket's once it has closed.
    receiver = os.dup(transport.get_extra_info("socket").fileno())
    try:
        end = offset + length
        while offset < end:
            size = min(AT_ONCE, end - offset)
            sent = await file.send(receiver, offset, size)
            offset += sent
            if sent < size and not await until_ready(receiver, stall, writing=True):
                raise ClientGone("the client takes nothing of its file")
    except ConnectionError as error:
        raise ClientGone("the client has gone") from error
    finally:
        os.close(receiver)


async def _emptied(transport: asyncio.Transport, drained: Callable[[], Awaitable[None]]) -> None:
    """Wait until the transport has sent everything that must leave first."""
    _open(transport).set_write_buffer_limits(0)
    await drained()
    _open(transport).set_write_buffer_limits()


def _open(transport: asyncio.Transport) -> asyncio.Transport:
    # uvloop's refuses everything else once it closes, a moment before it tells its protocol.
    if transport.is_closing():
        raise ClientGone("the client has gone")
    return transport


SERVER = "mcp-file-adapter"

_REASONS = {status.value: status.phrase for status in HTTPStatus}
DATE, SERVER_NAME = 1, 2
"""Fields that every answer has: an upstream's own, where it has them, else the adapter's."""

JOIN_BELOW = 64 * 1024
"""Bytes that may wait for what follows at once; copying more costs more than a write."""


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(seconds: int) -> str:
    """Seconds since 1970 as RFC 9110, 5.6.7, writes them: ``Sun, 06 Nov 1994 08:49:37 GMT``."""
    # email.utils has the same, and loads the parser of addresses and the locale for it.
    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(seconds)
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {clock} GMT"


class Clock:
    """The Date and Server fields, written once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._lines = [b""] * 4

    def lines(self, own: int) -> bytes:
        """The fields among DATE and SERVER_NAME that an answer does not have already, as ``own`` sums them up."""
        now = int(time.time())
        if now != self._second:
            self._second = now
            date, server = (
                f"Date: {http_date(now)}\r\n".encode(),
                f"Server: {SERVER}\r\n".encode(),
            )
            self._lines = [b"", date, server, date + server]
        return self._lines[own]


_clock = Clock()


class ConnectionWriter(Protocol):
    """The part of its connection that an answer needs."""

    def write(self, data: bytes) -> None: ...

    def soon(self, act: Callable[[], None]) -> None:
        """Call ``act`` when whoever runs now waits for something."""

    @property
    def full(self) -> bool: ...

    async def drained(self) -> None: ...

    async def send_file(self, file: Sendable, offset: int, length: int) -> None: ...

    def abort(self) -> None: ...


@dataclass(eq=False, repr=False, slots=True)
class HttpAnswer:
    """A Reply on a client's connection.

    ``keep`` is whether the connection may go on afterwards, ``modern`` whether the client speaks HTTP/1.1,
    ``bare`` whether the answer is a head alone, because it was asked for with HEAD. ``body`` is what the request
    brings; None: nothing that is waited for.
    """

    connection: ConnectionWriter
    keep: bool
    modern: bool = True
    bare: bool = False
    body: Body | None = None
    status: int | None = field(default=None, init=False)
    complete: bool = field(default=False, init=False)
    sent: int = field(default=0, init=False)
    extra: tuple[tuple[str, str], ...] = field(default=(), init=False)
    _chunked: bool = field(default=False, init=False)
    _left: int | None = field(default=None, init=False)
    _due: bytes = field(default=b"", init=False)

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """See Reply. Raises ValueError for a field that would be more than one line."""
        head = self._head(status, fields)
        if status in BODILESS:
            data = head + b"\r\n"
        elif self.bare:
            data = head + content_length(len(body))
        elif len(body) < JOIN_BELOW:
            data = b"".join((head, content_length(len(body)), body))
        else:
            self.connection.write(head + content_length(len(body)))
            data = body
        self.connection.write(data)
        self.sent = len(body)
        self.complete = True

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """See Reply. A client of HTTP/1.0 gets a body that ends with the connection. Raises as ``send``.

        The first piece is often here already; the head waits for it until the exchange itself has to wait,
        for one write less is a tenth off the time to the first event.
        """
        framing = b""
        if status in BODILESS:
            self.bare = True
        elif length is not None:
            framing = b"Content-Length: %d\r\n" % length
            self._left = length
        elif self.modern:
            framing = b"Transfer-Encoding: chunked\r\n"
            self._chunked = True
        else:
            self.keep = False
        self._due = self._head(status, fields) + framing + b"\r\n"
        self.connection.soon(self._send_due)

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Reply."""
        # An empty chunk would be the last one.
        if chunk and not self.bare:
            self.sent += len(chunk)
            if self._left is not None:
                self._left -= len(chunk)
            data = b"%x\r\n%s\r\n" % (len(chunk), chunk) if self._chunked else chunk
            if self._due:
                data, self._due = self._due + data, b""
            if more and len(data) < JOIN_BELOW:
                self._due = data
                self.connection.soon(self._send_due)
            else:
                self.connection.write(data)
        return not self.connection.full

    async def drained(self) -> None:
        """See Reply."""
        await self.connection.drained()

    async def write(self, piece: bytes) -> None:
        """See Reply."""
        self.put(piece)
        await self.connection.drained()

    async def write_file(self, file: Sendable, offset: int, length: int) -> None:
        """See Reply."""
        assert self._left is not None, "a file is sent where its length was announced"
        self._send_due()
        if not self.bare:
            await self.connection.send_file(file, offset, length)
            self.sent += length
            self._left -= length

    def end(self) -> None:
        """See Reply. A body of another length than was announced breaks the connection off."""
        if self._left and not self.bare:
            self.abort()
            return
        if self._chunked and not self.bare:
            self._due += b"0\r\n\r\n"
        self._send_due()
        self.complete = True

    def abort(self) -> None:
        """See Reply."""
        self._send_due()
        self.keep = False
        self.connection.abort()

    def _send_due(self) -> None:
        if self._due:
            due, self._due = self._due, b""
            self.connection.write(due)

    def _head(self, status: int, fields: list[tuple[str, str]]) -> bytes:
        if self.body is not None and not self.body.complete:
            # The rest of it will be thrown away, and the connection with it. A client that is not told (RFC 9112,
            # 9.6) sends its next request there, and learns that it failed.
            self.keep = False
        option = None if self.keep and self.modern else "keep-alive" if self.keep else "close"
        if self.extra:
            fields = [*fields, *self.extra]
        if type(fields) is SharedFields:
            known: tuple[bytes, int] | None = fields.derived.get((status, option))
            if known is None:
                known = _kept_head(status, fields, option)
            head, own = known
        else:
            head, own = _encoded_head(status, tuple(fields), option)
        self.status = status
        return head + _clock.lines(own)


def _kept_head(status: int, fields: SharedFields, option: str | None) -> tuple[bytes, int]:
    """See ``_encoded_head``; it is kept with the fields. Raises ValueError."""
    known = None if fields.base is None else _longer_head(status, fields.base, fields[-1], option)
    if known is None:
        known = _encoded_head(status, tuple(fields), option)
    fields.derived[status, option] = known
    return known


def _longer_head(
    status: int, base: SharedFields, field: tuple[str, str], option: str | None
) -> tuple[bytes, int] | None:
    """The head of ``base`` and a line for one more field; None for a field that counts for the head as a whole."""
    name, value = field
    line = f"{name}: {value}"
    if not line.isprintable() or name.lower() in ("date", "server"):
        return None
    head, own = base.derived.get((status, option)) or _kept_head(status, base, option)
    return head + line.encode("latin-1", "replace") + b"\r\n", own


# Answers differ in few fields, and those that do cost little more: a head known from before saves two thirds.
@lru_cache(maxsize=256)
def _encoded_head(status: int, fields: tuple[tuple[str, str], ...], option: str | None) -> tuple[bytes, int]:
    """Status line and fields, and which of DATE and SERVER_NAME are not among them.

    ``option`` is the Connection field's, if there is to be one. Raises ValueError.
    """
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in fields]
    if option is not None:
        lines.append(f"Connection: {option}\r\n")
    head = "".join(lines)
    # A value with a line break in it would be fields, or a whole answer, that nobody here wrote.
    if head.count("\r") != len(lines) or head.count("\n") != len(lines) or "\0" in head:
        raise ValueError("a header field of the answer holds CR, LF or NUL")
    names = {name.lower() for name, _ in fields}
    own = ("date" not in names) * DATE + ("server" not in names) * SERVER_NAME
    return head.encode("latin-1", "replace"), own


# --- answers of the adapter's own APIs --------------------------------------------------------------------------

EVENT_STREAM = "text/event-stream"

_FIELDS = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]


def send(request: Request, answered: HttpOutcome, *more: tuple[str, str]) -> None:
    """Send a JSON answer, with ``more`` fields."""
    fields = [("Content-Type", "application/json"), *_FIELDS, *more]
    if answered.challenge is not None or answered.status == Unauthorized.http:
        fields.append(("WWW-Authenticate", answered.challenge or Unauthorized.challenge))
    request.reply.send(answered.status, fields, answered.body)


def begin_stream(request: Request, *more: tuple[str, str]) -> None:
    """Send the head of an answer in events, with ``more`` fields."""
    # nginx would keep events back until there are enough of them.
    fields = [("Content-Type", EVENT_STREAM), ("X-Accel-Buffering", "no"), *_FIELDS, *more]
    request.reply.begin(200, fields, None)


class CallStream:
    """A call's answer as events, its head with ``more`` fields. ``begun`` says that it has left."""

    def __init__(self, request: Request, *more: tuple[str, str]) -> None:
        self._request = request
        self._more = more
        self.begun = False

    def begin(self) -> None:
        """The head; events follow."""
        begin_stream(self._request, *self._more)
        self._request.last_words = _cut
        self.begun = True

    async def __call__(self, progress: dict[str, Any]) -> None:
        """Send how far the call is. Raises ClientGone."""
        await self._request.reply.write(b"event: progress\ndata: %s\n\n" % dump(progress))

    async def event(self, name: str, data: dict[str, Any]) -> None:
        """Send another event of the call; ``name`` is one of the adapter's own. Raises ClientGone."""
        await self._request.reply.write(b"event: %s\ndata: %s\n\n" % (name.encode(), dump(data)))

    async def end(self, answered: HttpOutcome) -> None:
        """Send the outcome of the call. Raises ClientGone."""
        await self._request.reply.write(_result(answered.status, answered.body))
        self._request.reply.end()


def _result(status: int, body: bytes) -> bytes:
    return b'event: result\ndata: {"status":%d,"body":%s}\n\n' % (status, body)


def _cut(error: AdapterError) -> bytes:
    """The outcome of a call that the adapter does not wait for."""
    return _result(error.http, dump({"detail": str(error)}))


def wants_stream(request: Request) -> bool:
    """Tell whether the caller takes events, and names them before JSON if it takes JSON too."""
    accept = request.headers.get("Accept", "").lower()
    if EVENT_STREAM not in accept:
        return False
    kinds = [kind.partition(";")[0].strip() for kind in accept.split(",")]
    named = [kind for kind in kinds if kind in (EVENT_STREAM, "application/json")]
    return named[:1] == [EVENT_STREAM]
