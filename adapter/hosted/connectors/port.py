"""The port of what hosted tools ask data of: a bound statement goes in, rows come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from adapter.rules.statements.statements import Bound, Kind


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
