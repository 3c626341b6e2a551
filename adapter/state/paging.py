"""Reading and deleting of many rows, one page after another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from adapter.state.port import Conflict, Row, Store

PAGE = 500
"""Rows that are asked for at once."""


async def every_row(store: Store, table: str, group: str | None = None) -> AsyncIterator[Row]:
    """The rows of a table, of one group or of all, in order of key. Raises StoreUnavailable.

    A row that is written or deleted meanwhile may be among them or not.
    """
    after = ""
    while True:
        rows = await store.scan(table, group=group, after=after, limit=PAGE)
        for row in rows:
            yield row
        # No store gives fewer rows than it was asked for while it has more.
        if len(rows) < PAGE:
            return
        after = rows[-1].key


async def delete_overdue(store: Store, table: str, now: float) -> None:
    """Delete the rows that are due at ``now`` (Unix seconds), but for those that change meanwhile.

    Raises StoreUnavailable when the deletions under way have ended.
    """
    while True:
        rows = await store.overdue(table, now, limit=PAGE)
        ended = await asyncio.gather(*(_delete(store, table, row) for row in rows), return_exceptions=True)
        for failure in ended:
            if failure is not None:
                raise failure
        # A row that changed is left for the next time, so that no writer can keep this one busy.
        if len(rows) < PAGE:
            return


async def _delete(store: Store, table: str, row: Row) -> None:
    with contextlib.suppress(Conflict):
        await store.delete(table, row.key, expected=row.version)
