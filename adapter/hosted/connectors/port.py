"""The port of what hosted tools ask data of: a bound statement goes in, rows come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Bound(Protocol):
    """A statement with its values, ready for one dialect. Only the part that its dialect needs is looked at.

    SQL (sqlite, postgres, mysql) reads ``text``, which has the driver's placeholders (``?``, ``$1``, ``%s``),
    and ``values`` in their order; in a mysql text that has placeholders a percent sign is doubled. redis reads
    ``argv``, mongodb ``document``.
    """

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def values(self) -> Sequence[Any]: ...

    @property
    def argv(self) -> Sequence[str | bytes]: ...

    @property
    def document(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Rows:
    """What a statement gave, as JSON knows it: objects, lists, texts, numbers, booleans and None only.

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
    def kind(self) -> str: ...

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
