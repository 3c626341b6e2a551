"""How one request is answered on its client's connection: status line, fields and the framing of the body."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

SERVER = "mcp-file-adapter"

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_BODILESS = (204, 304)


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


class Connection(Protocol):
    """What an answer needs of the connection it leaves by."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    def abort(self) -> None: ...


class HttpAnswer:
    """A Reply on a client's connection.

    ``keep`` is whether the connection may go on afterwards, ``modern`` whether the client speaks HTTP/1.1,
    ``bare`` whether the answer is a head alone, because it was asked for with HEAD.
    """

    __slots__ = ("_bare", "_chunked", "_connection", "_left", "_modern", "complete", "keep", "status")

    def __init__(
        self, connection: Connection, *, keep: bool, modern: bool = True, bare: bool = False
    ) -> None:
        self.status: int | None = None
        self.complete = False
        self.keep = keep
        self._connection = connection
        self._modern = modern
        self._bare = bare
        self._chunked = False
        self._left: int | None = None

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """See Reply. Raises ValueError for a field that would be more than one line."""
        length = b"" if status in _BODILESS else b"Content-Length: %d\r\n" % len(body)
        head = self._head(status, fields) + length + b"\r\n"
        self._connection.write(head if self._bare or not length else head + body)
        self.complete = True

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """See Reply. A client of HTTP/1.0 gets a body that ends with the connection. Raises as ``send``."""
        framing = b""
        if status in _BODILESS:
            self._bare = True
        elif length is not None:
            framing = b"Content-Length: %d\r\n" % length
            self._left = length
        elif self._modern:
            framing = b"Transfer-Encoding: chunked\r\n"
            self._chunked = True
        else:
            self.keep = False
        self._connection.write(self._head(status, fields) + framing + b"\r\n")

    async def write(self, piece: bytes) -> None:
        """See Reply."""
        # An empty chunk would be the last one.
        if piece and not self._bare:
            if self._left is not None:
                self._left -= len(piece)
            self._connection.write(b"%x\r\n%s\r\n" % (len(piece), piece) if self._chunked else piece)
        await self._connection.drained()

    def end(self) -> None:
        """See Reply. A body of another length than was announced breaks the connection off."""
        if self._bare:
            self.complete = True
        elif self._left:
            self.abort()
        else:
            if self._chunked:
                self._connection.write(b"0\r\n\r\n")
            self.complete = True

    def abort(self) -> None:
        """See Reply."""
        self.keep = False
        self._connection.abort()

    def _head(self, status: int, fields: list[tuple[str, str]]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in fields]
        if not self.keep:
            lines.append("Connection: close\r\n")
        elif not self._modern:
            lines.append("Connection: keep-alive\r\n")
        head = "".join(lines)
        # A value with a line break in it would be fields, or a whole answer, that nobody here wrote.
        if head.count("\r") != len(lines) or head.count("\n") != len(lines) or "\0" in head:
            raise ValueError("a header field of the answer holds CR, LF or NUL")
        self.status = status
        return head.encode("latin-1", "replace") + _clock.line()
