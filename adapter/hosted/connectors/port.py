"""The port of databases that hosted tools ask: a bound statement goes in, rows come out.

Here too is what connectors share: their options, reasons of failures, a pool, and values as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import math
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from adapter.rules.statements.statements import Bound, Kind

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "nothing listens at the configured address"),
    (socket.gaierror, "the configured host name is not known"),
    (ssl.SSLError, "the TLS handshake failed"),
    (TimeoutError, "no answer in time"),
    (ConnectionError, "the connection was lost"),
    (FileNotFoundError, "the configured socket does not exist"),
    (PermissionError, "the configured address may not be used"),
    (OSError, "the configured address cannot be reached"),
    (EOFError, "the connection was lost"),
)
"""The first that fits counts: each is a class of the operating system's or of one above it."""


def reason(error: BaseException) -> str | None:
    """The reason of a failed or lost connection, or None when ``error`` is neither.

    Drivers wrap the system's error, so the chain of causes is searched too, the innermost first.
    """
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    for link in reversed(chain):
        for kind, words in _REASONS:
            if isinstance(link, kind):
                return words
    return None


_QUOTED = re.compile(r"""(['"]).*\1""", re.DOTALL)
"""To the last quote, not the next: what is quoted may hold some."""


def of_the_call(sentence: str, values: Iterable[object]) -> str:
    """A server's sentence about a value or a place of the statement, with quotations left out.

    The value may be one of any row that the statement passed, and the place is followed by the rest of the
    statement: a quotation stays only where it is one of the call's own values.
    """
    own = {str(value) for value in values}
    return _QUOTED.sub(
        lambda found: found[0] if found[0][1:-1] in own else f"{found[1]}…{found[1]}", sentence
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of a statement, as JSON values: objects, lists, texts, numbers, booleans and None only.

    ``truncated``: there was more than ``max_rows``. ``affected``: how many rows or documents a write changed, None
    where nothing was counted.
    """

    rows: list[dict[str, Any]]
    truncated: bool = False
    affected: int | None = None

    @classmethod
    def written(cls, count: int) -> Rows:
        """The rows of a write that returns none. A driver's -1, "not counted", is a count of 0."""
        affected = max(count, 0)
        return cls([{"rows_affected": affected}], affected=affected)


class ConnectorFailed(Exception):
    """A connector cannot be opened. Its sentence names the connector and never repeats the connection string, which
    holds a password."""


class QueryFailed(Exception):
    """The statement failed. The sentence is the driver's where the server answered, so it may hold a piece of the
    statement: it passes through the rules of exposure before a caller sees it."""


class QueryTimedOut(QueryFailed):
    """The statement, or the wait for a free connection, took longer than it may."""


class Connector(Protocol):
    """Connections to one database. All methods belong to the event loop that called ``open``."""

    @property
    def kind(self) -> Kind: ...

    @property
    def name(self) -> str: ...

    async def open(self) -> None:
        """Connect once, to know that it works. Raises ConnectorFailed, and nothing is left open then."""

    async def close(self) -> None:
        """Close every connection; those in use are dropped when their statement ends."""

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        """Run one statement and read at most ``max_rows`` of its rows. ``timeout`` is in seconds and includes the
        wait for a free connection.

        A caller that is cancelled, and a timeout, end the statement on the server too. Raises QueryFailed,
        QueryTimedOut.
        """


def not_opened(connector: Connector, why: str) -> ConnectorFailed:
    """The failure of a connector that cannot be opened; ``why`` holds nothing of how it was configured."""
    return ConnectorFailed(f"connector '{connector.name}' ({connector.kind}): {why}")


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cancel the body after ``seconds`` and raise QueryTimedOut; every other failure passes."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise QueryTimedOut(f"the statement took longer than {seconds:g} s") from error


class ConnectorOptions:
    """The options of one connector. Every method raises ConnectorFailed for a wrong value; the sentence names the
    option, never its value."""

    def __init__(self, kind: str, name: str, options: Mapping[str, Any]) -> None:
        self._left = dict(options)
        self._whose = f"connector '{name}' ({kind})"

    def text(self, option: str) -> str | None:
        value = self._left.pop(option, None)
        return None if value is None else _spelled(value)

    def one_of(self, option: str, choices: Sequence[str]) -> str | None:
        value = self.text(option)
        if value is None:
            return None
        if value.lower() not in choices:
            self._refuse(option, f"is one of {', '.join(choices)}")
        return value.lower()

    def pool_size(self, *, default: int) -> int:
        """Return the number of connections that may be open at once, at least 1."""
        value = self.text("pool_size")
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            self._refuse("pool_size", "must be a whole number of at least 1")
        return int(value)

    def rest(self) -> dict[str, str]:
        """All options that were not read, for the driver."""
        rest, self._left = {key: _spelled(value) for key, value in self._left.items()}, {}
        return rest

    def done(self) -> None:
        """Raise ConnectorFailed for an option that was not read."""
        if self._left:
            self._refuse(min(self._left), "is not known")

    def _refuse(self, option: str, why: str) -> NoReturn:
        raise ConnectorFailed(f"{self._whose}: option '{option}' {why}")


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


C = TypeVar("C")


class DriverPool(Generic[C]):
    """At most ``size`` connections, made when they are needed; the one used last is used next.

    ``usable`` is asked before a connection is handed out and before it is taken back: a statement that is left
    unfinished closes its connection, and the pool sees that. No pool of a driver does all of this: wait when all are in
    use, never hand out a dead connection, and never take back one whose statement did not come to its end.
    """

    def __init__(
        self,
        size: int,
        *,
        connect: Callable[[], Awaitable[C]],
        usable: Callable[[C], bool],
        drop: Callable[[C], Awaitable[None]],
    ) -> None:
        self._free = asyncio.Semaphore(size)
        self._connect = connect
        self._usable = usable
        self._drop = drop
        self._idle: list[C] = []
        self._closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[C]:
        """A connection for one statement; waits for as long as all are in use."""
        async with self._free:
            connection = await self._taken()
            try:
                yield connection
            finally:
                await self._put_back(connection)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._drop(self._idle.pop())

    async def _taken(self) -> C:
        if self._closed:
            raise QueryFailed("the connector is closed")
        while self._idle:
            connection = self._idle.pop()
            if self._usable(connection):
                return connection
            await self._drop(connection)
        return await self._connect()

    async def _put_back(self, connection: C) -> None:
        if not self._closed and self._usable(connection):
            self._idle.append(connection)
        else:
            # A caller that is cancelled once more must not leave a socket behind.
            await asyncio.shield(self._drop(connection))


def plain(value: Any) -> Any:
    """``value`` in the terms of JSON; mappings, lists, tuples and sets are gone through.

    Bytes become text where they are UTF-8 and base64 where they are not; dates and times ISO 8601; a span of time
    ``[-]HH:MM:SS``; a number that JSON cannot spell (NaN, Infinity) its name. Everything else becomes its text: a
    decimal keeps all its digits, a UUID its hyphens.
    """
    match value:
        case None | bool():
            return value
        # Drivers have subclasses of numbers and texts, which a strict serializer refuses.
        case int():
            return int(value)
        case str():
            return str(value)
        case float():
            return float(value) if math.isfinite(value) else _NAMES[str(float(value))]
        case bytes() | bytearray() | memoryview():
            return _text(bytes(value))
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _span(value)
        case Mapping():
            return {_key(key): plain(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(member) for member in value]
        case _:
            return str(value)


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _key(key: Any) -> str:
    plainly = plain(key)
    return plainly if isinstance(plainly, str) else str(plainly)


def _span(value: timedelta) -> str:
    seconds, sign = abs(value), "-" if value < timedelta(0) else ""
    minutes, rest = divmod(seconds.days * 86_400 + seconds.seconds, 60)
    fraction = f".{seconds.microseconds:06d}" if seconds.microseconds else ""
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}{fraction}"
