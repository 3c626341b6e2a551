"""The port of what hosted tools ask data of: a bound statement goes in, rows come out."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

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

    Drivers wrap what the system said, so the chain of causes is searched too, the innermost first.
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
    """A server's sentence about a value or a place of the statement that it could not use, which it quotes.

    The value may be one of any row that the statement passed, and the place is followed by the rest of the
    statement: what is quoted stays only where it is one of the call's own values.
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
    """A connector cannot be opened. Its sentence names the connector and never repeats what it was configured
    with, because a connection string holds a password."""


class QueryFailed(Exception):
    """The statement failed. The sentence is the driver's where the server answered, so it may hold a piece of the
    statement: whoever shows it to a caller passes it through the rules of exposure."""


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
        """Let go of every connection; those in use are dropped when their statement ends."""

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        """Run one statement and read at most ``max_rows`` of its rows. ``timeout`` is in seconds and includes the
        wait for a free connection.

        A caller that is cancelled, and a timeout, end the statement on the server too. Raises QueryFailed,
        QueryTimedOut.
        """


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cancels its body after ``seconds``. Raises QueryTimedOut then, and lets every other failure pass."""
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise QueryTimedOut(f"the statement took longer than {seconds:g} s") from error


class ConnectorOptions:
    """The options of one connector. Every method raises ConnectorFailed for a value that cannot be; the sentence
    names the option, never its value."""

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
        """All that was not read, for a driver that knows what to do with it."""
        rest, self._left = {key: _spelled(value) for key, value in self._left.items()}, {}
        return rest

    def done(self) -> None:
        """Raises ConnectorFailed for an option that nobody has read."""
        if self._left:
            self._refuse(min(self._left), "is not known")

    def _refuse(self, option: str, why: str) -> NoReturn:
        raise ConnectorFailed(f"{self._whose}: option '{option}' {why}")


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
