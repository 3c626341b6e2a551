"""One client's HTTP/1.1 connection (RFC 9112).

httptools decides what the bytes mean; this protocol decides what happens: each request gets a task of its own,
one after the other, which is cancelled when the client goes away. A general server costs twice as much a call.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools

from adapter.edge.request import RESUME_BELOW, Body, ClientGone, Fields, Request

SERVER = "mcp-file-adapter"
HEAD_LIMIT = 32 * 1024
"""Bytes of a request's head; more is 431."""

PIPELINE_LIMIT = 8
"""Requests that may wait behind the one being answered."""

PAUSE_ABOVE = 4 * RESUME_BELOW
IDLE_SECONDS = 75.0
"""How long a connection may lie idle, or take for a head."""

LINGER_SECONDS = 2.0
"""How long a refused body is still taken and thrown away."""

Handler = Callable[[Request], Awaitable[None]]

_REASONS = {status.value: status.phrase for status in HTTPStatus}
# An offer to change the protocol may be ignored (RFC 9110, 7.8), but the parser would stop at it.
_UPGRADE = re.compile(rb"(?im)^upgrade:")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Clock:
    """The Date field, written once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._line = f"Date: {formatdate(now, usegmt=True)}\r\nServer: {SERVER}\r\n".encode()
        return self._line


_clock = Clock()


class ClientConnection(asyncio.Protocol):
    """``opened`` and ``lost`` are told of this connection, ``handler`` answers each of its requests."""

    def __init__(self, handler: Handler, connections: set[ClientConnection]) -> None:
        self._handler = handler
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._target = b""
        self._pairs: list[tuple[str, str]] = []
        self._head_size = 0
        self._body: Body | None = None
        self._reading_head = False
        self._waiting: deque[tuple[Request, HttpAnswer]] = deque()
        self._answer: HttpAnswer | None = None
        self.task: asyncio.Task[None] | None = None
        self._paused = False
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0
        self._lost = False
        self._discarding = False

    def __repr__(self) -> str:
        return f"<ClientConnection: {'busy' if self._answer else 'idle'}, {len(self._waiting)} waiting>"

    # --- what the transport says ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._quiet_since = self._loop.time()
        self._deadline = self._loop.call_later(IDLE_SECONDS, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio says how it is called
        self._lost = True
        self._connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        gone = ClientGone("the client has gone")
        if self._body is not None:
            self._body.fail(gone)
        self._waiting.clear()
        if self.task is not None:
            self.task.cancel()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._body is None:
            self._head_size += len(data)
            if b"pgrade" in data or b"PGRADE" in data:
                data = _UPGRADE.sub(b"x-upgrade:", data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400, b"this is not HTTP/1.1 as RFC 9112 has it")
            return
        if self._reading_head and self._head_size > HEAD_LIMIT:
            self._refuse(431, b"the head of the request is too large")
            return
        body = self._body
        crowded = len(self._waiting) >= PIPELINE_LIMIT or (body is not None and body.size > PAUSE_ABOVE)
        if crowded and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- what the parser says -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._pairs = []
        self._reading_head = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser leaves the white space behind a value, which is no part of it (RFC 9110, 5.5).
        self._pairs.append((name.decode("latin-1"), value.decode("latin-1").strip(" \t")))

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._head_size = 0
        parser = self._parser
        fields = Fields(self._pairs)
        body = self._body = Body(self._resume_reading)
        length = fields.get("content-length")
        if fields.get("expect", "").lower() == "100-continue":
            body.wanted = self._say_continue
        target = self._target.decode("latin-1")
        answer = HttpAnswer(self, keep=parser.should_keep_alive(), chunks=parser.get_http_version() != "1.0")
        request = Request(
            parser.get_method().decode("latin-1"),
            target,
            _path(self._target),
            fields,
            int(length) if length else None,
            body,
            answer,
        )
        if self._answer is None:
            self._start(request, answer)
        else:
            self._waiting.append((request, answer))

    def on_body(self, chunk: bytes) -> None:
        assert self._body is not None
        self._body.add(chunk)

    def on_message_complete(self) -> None:
        if self._body is not None:
            self._body.end()
            self._body = None

    # --- exchanges ------------------------------------------------------------------------------------------

    def _start(self, request: Request, answer: HttpAnswer) -> None:
        self._answer = answer
        self.task = self._loop.create_task(self._run(request, answer))

    async def _run(self, request: Request, answer: HttpAnswer) -> None:
        try:
            await self._handler(request)
        except ClientGone:
            return
        except BaseException:
            answer.abort()
            raise
        self._next(request, answer)

    def _next(self, request: Request, answer: HttpAnswer) -> None:
        self.task = self._answer = None
        if self._lost:
            return
        if not answer.keep or not request.body.complete:
            self._leave(body_arriving=not request.body.complete)
            return
        self._quiet_since = self._loop.time()
        if self._waiting:
            self._start(*self._waiting.popleft())
            self._resume_reading()

    def _refuse(self, status: int, why: bytes) -> None:
        """Answer what cannot be understood, and close: where the next request begins is not known."""
        if self._answer is None and not self._transport.is_closing():
            HttpAnswer(self, keep=False, chunks=False).send(
                status, [("Content-Type", "application/json")], b'{"detail":"' + why + b'"}'
            )
            self._leave(body_arriving=True)
        else:
            self._transport.abort()

    def _leave(self, *, body_arriving: bool) -> None:
        """Close after the answer. While a body is still arriving a plain close would be a reset to its sender,

        which would then never read the answer; so what comes is thrown away for a moment (RFC 9112, 9.6).
        """
        if not body_arriving or self._transport.is_closing() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._discarding = True
        self._transport.write_eof()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def _resume_reading(self) -> None:
        if self._paused and len(self._waiting) < PIPELINE_LIMIT and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _say_continue(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(_CONTINUE)

    def _check_idle(self) -> None:
        """Close when nothing was asked for a while, or a head does not come to its end."""
        quiet = self._loop.time() - self._quiet_since
        if self._answer is None and quiet >= IDLE_SECONDS:
            self._transport.close()
            return
        wait = IDLE_SECONDS if self._answer is not None else IDLE_SECONDS - quiet
        self._deadline = self._loop.call_later(max(wait, 1.0), self._check_idle)

    # --- for answers and the listener -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._lost:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the client takes more. Raises ClientGone."""
        if self._lost:
            raise ClientGone("the client has gone")
        if self._write_paused:
            self._writable = self._loop.create_future()
            await self._writable

    def abort(self) -> None:
        self._transport.abort()

    def close_if_idle(self) -> None:
        if self._answer is None:
            self._transport.close()


class HttpAnswer:
    """A Reply on a client's connection."""

    __slots__ = ("_chunked", "_chunks", "_connection", "keep", "status")

    def __init__(self, connection: ClientConnection, *, keep: bool, chunks: bool) -> None:
        self.status: int | None = None
        self.keep = keep
        self._connection = connection
        self._chunks = chunks
        self._chunked = False

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """See Reply."""
        length = b"" if status == 204 else b"Content-Length: %d\r\n" % len(body)
        self._connection.write(self._head(status, fields) + length + b"\r\n" + body)

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """See Reply. A client of HTTP/1.0 gets a body that ends with the connection."""
        framing = b""
        if length is not None:
            framing = b"Content-Length: %d\r\n" % length
        elif self._chunks:
            framing = b"Transfer-Encoding: chunked\r\n"
            self._chunked = True
        else:
            self.keep = False
        self._connection.write(self._head(status, fields) + framing + b"\r\n")

    async def write(self, piece: bytes) -> None:
        """See Reply."""
        self._connection.write(b"%x\r\n%s\r\n" % (len(piece), piece) if self._chunked else piece)
        await self._connection.drained()

    def end(self) -> None:
        """See Reply."""
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")

    def abort(self) -> None:
        """See Reply."""
        self.keep = False
        self._connection.abort()

    def _head(self, status: int, fields: list[tuple[str, str]]) -> bytes:
        self.status = status
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in fields]
        if not self.keep:
            lines.append("Connection: close\r\n")
        return "".join(lines).encode("latin-1", "replace") + _clock.line()


def _path(target: bytes) -> str:
    """The path of a request target in origin or absolute form, decoded; empty for what has none."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b""
        except httptools.HttpParserInvalidURLError:
            return ""
    path = target.partition(b"?")[0].decode("latin-1")
    return unquote(path) if "%" in path else path
