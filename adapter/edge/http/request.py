"""One HTTP request as it arrives: its head, its body, and the way to answer it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from adapter.edge.http.bodies import Body


class ClientGone(ConnectionError):
    """The client closed its connection before the exchange was over."""


class Fields(Mapping[str, str]):
    """Header fields by name in any spelling; of several of one name the first. ``pairs`` has all, as they came.

    ``repeated`` are the names, in lower case, that are there more than once. Requests on one connection share them
    while they stay the same, so nothing changes them; ``derived`` is for what follows from them alone and need not be
    found out again.
    """

    __slots__ = ("_first", "derived", "pairs", "repeated")

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        self.derived: dict[object, Any] = {}
        self._first: dict[str, str] = {}
        for name, value in pairs:
            self._first.setdefault(name.lower(), value)
        self.repeated: frozenset[str] = frozenset()
        if len(self._first) != len(pairs):
            times = Counter(name.lower() for name, _ in pairs)
            self.repeated = frozenset(name for name, count in times.items() if count > 1)

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
    """``path`` is percent-decoded, without its query; ``target`` is as it was sent.

    ``peer`` is the address at the other end of the connection, a proxy's where there is one; None if it has none.
    """

    __slots__ = ("body", "headers", "method", "path", "peer", "reply", "target")

    def __init__(
        self,
        method: str,
        target: str,
        path: str,
        headers: Fields,
        body: Body,
        reply: Reply,
        peer: str | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.body = body
        self.reply = reply
        self.peer = peer

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"
