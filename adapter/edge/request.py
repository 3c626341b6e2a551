"""One HTTP request as it arrives: its head, its body piece by piece, and the way to answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

RESUME_BELOW = 64 * 1024
"""Bytes of a body that may wait unread before its sender is slowed down."""


class ClientGone(ConnectionError):
    """The client closed its connection before the exchange was over."""


class Fields(Mapping[str, str]):
    """Header fields by name in any spelling; of several of one name the first. ``pairs`` has all, as they came.

    Requests on one connection share them while they stay the same, so nothing changes them; ``derived`` is for
    what follows from them alone and need not be found out again.
    """

    __slots__ = ("_first", "derived", "pairs")

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        self.derived: dict[object, Any] = {}
        self._first: dict[str, str] = {}
        for name, value in pairs:
            self._first.setdefault(name.lower(), value)

    def get(self, name: str, default: Any = None) -> Any:
        # Mapping's own get goes through an exception for each field that is not there, ten times a call.
        return self._first.get(name.lower(), default)

    @property
    def lower(self) -> Mapping[str, str]:
        """The fields by their names in lower case."""
        return self._first

    def __getitem__(self, name: str) -> str:
        return self._first[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)


class Body:
    """A request's body. Its connection adds to it; one reader takes from it, and is waited for when slow."""

    __slots__ = ("_chunks", "_failure", "_resume", "_waiter", "complete", "size", "wanted")

    def __init__(self, resume: Callable[[], None]) -> None:
        self.complete = False
        self.size = 0
        self.wanted: Callable[[], None] | None = None
        self._chunks: list[bytes] = []
        self._failure: ClientGone | None = None
        self._resume = resume
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """What has come since the last call, ``b""`` at the end. Raises ClientGone."""
        await self._arrived()
        return self.take()

    async def piece(self, patience: float) -> bytes:
        """The next piece as it came, ``b""`` at the end. Raises ClientGone, and TimeoutError when nothing comes for
        ``patience`` seconds.

        For who does not want the whole: nothing is copied, and no more than needed waits in memory.
        """
        if not self._chunks and not self.complete:
            # Only now: while the last piece is being written, more would only wait here.
            self._resume()
        await self._arrived(patience)
        if not self._chunks:
            return b""
        piece = self._chunks.pop(0)
        self.size -= len(piece)
        return piece

    async def _arrived(self, patience: float | None = None) -> None:
        while not self._chunks and not self.complete:
            if self._failure is not None:
                raise self._failure
            if self.wanted is not None:
                wanted, self.wanted = self.wanted, None
                wanted()
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            if patience is None:
                await self._waiter
                continue
            # Not asyncio.timeout: for each piece of a large body it would cost as much as reading it.
            late = loop.call_later(patience, _give_up, self._waiter)
            try:
                await self._waiter
            finally:
                late.cancel()

    def take(self) -> bytes:
        """What is here now."""
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.size = 0
        if not self.complete:
            self._resume()
        return piece

    # --- for the connection ---------------------------------------------------------------------------------

    def add(self, chunk: bytes) -> None:
        # Whose body is coming does not wait to be asked for it.
        self.wanted = None
        self._chunks.append(chunk)
        self.size += len(chunk)
        self._wake()

    def end(self) -> None:
        self.complete = True
        self._wake()

    def fail(self, failure: ClientGone) -> None:
        self._failure = failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class Sendable(Protocol):
    """A file that the kernel can send; see OpenFile."""

    async def send(self, receiver: int, offset: int, length: int) -> int: ...


class Reply(Protocol):
    """The way to answer a request: once whole, or a head and then pieces."""

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """The whole answer. ``fields`` hold no framing field."""

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """The head of an answer whose body follows; without ``length`` (bytes) it is chunked."""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """One piece, without waiting; False while the client is slow, until ``drained`` has returned.

        ``more``: another follows at once, or the end, and they may leave together.
        """

    async def drained(self) -> None:
        """Wait until the client takes more. Raises ClientGone."""

    async def write(self, piece: bytes) -> None:
        """One piece; waits while the client is slow. Raises ClientGone."""

    async def write_file(self, file: Sendable, offset: int, length: int) -> None:
        """That many bytes of a file, in an answer whose length was announced. Raises as ``write``, and what
        ``file`` raises.
        """

    def end(self) -> None:
        """The body is complete."""

    def abort(self) -> None:
        """Break the connection off, so that nobody takes the answer for complete."""

    @property
    def status(self) -> int | None:
        """The status that was sent, None before."""


class Request:
    """``path`` is percent-decoded, without its query; ``target`` is as it was sent. ``length`` is in bytes.

    ``peer`` is the address at the other end of the connection, a proxy's where there is one; None if it has none.
    """

    __slots__ = ("body", "headers", "length", "method", "path", "peer", "reply", "target")

    def __init__(
        self,
        method: str,
        target: str,
        path: str,
        headers: Fields,
        length: int | None,
        body: Body,
        reply: Reply,
        peer: str | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.length = length
        self.body = body
        self.reply = reply
        self.peer = peer

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"
