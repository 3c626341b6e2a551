"""The state store's port: rows in named tables, with versions, so that two writers cannot both win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

ABSENT = 0
"""The version of a row that does not exist: ``put(…, expected=ABSENT)`` creates or refuses."""


@dataclass(frozen=True, slots=True)
class Row:
    """``version`` counts up from 1 with every write; ``due`` is Unix time in seconds, or None: never due."""

    key: str
    value: bytes
    version: int
    due: float | None


class Conflict(Exception):
    """The row was not at the expected version, because another writer was first. Read it again and decide anew."""


class Store(Protocol):
    """Rows in named tables. Every method raises StoreUnavailable if the store fails, and else only what it names."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Finish every write under way, then let go of the store."""

    async def get(self, table: str, key: str) -> Row | None: ...

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """Write a row and return it; durable against a killed process when this returns.

        ``expected`` is the version the row must have (ABSENT: must not exist), None writes in any case.
        Raises Conflict.
        """

    async def put_all(
        self,
        table: str,
        rows: Sequence[tuple[str, bytes, float | None]],
        *,
        instead_of: Sequence[str] = (),
    ) -> None:
        """Create a row for each (key, value, due) and delete those with the keys of ``instead_of``, in one step:
        everything or nothing, durable when this returns.

        Absent rows are passed over. Raises Conflict if a row that is to be created exists already.
        """

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """True if the row was there. Raises Conflict if it was there at another version than ``expected``."""

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        """Set ``due`` of many rows at once, without changing value or version; absent rows are passed over."""

    async def scan(self, table: str, *, after: str = "", limit: int = 500) -> list[Row]:
        """Rows with a key above ``after``, in order of key (bytes of UTF-8)."""

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        """Rows with ``due <= now``, the longest overdue first."""

    async def count(self, table: str, *, holding: bytes = b"") -> int:
        """The number of rows, or of those alone whose value has these bytes in it."""
