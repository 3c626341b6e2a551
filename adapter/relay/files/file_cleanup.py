"""The cleanup of files: expired ones, those of scopes that are gone, and bytes that no record knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from adapter.relay.files.scope_cache import TABLE, ScopeCache
from adapter.relay.files.storage_total import LEASE
from adapter.rules.access.principals import Scope
from adapter.rules.files.file_records import FileRecord, Place, decode, record_key
from adapter.state.port import Row, every_row

PAGES = 20
"""Pages of rows that are looked through in one round for scopes that are gone."""

Gone = Callable[[Scope], Awaitable[bool]]
DropScope = Callable[[str], Awaitable[None]]


@dataclass(eq=False, repr=False, slots=True)
class FileCleanup:
    """Finds what is to go. ``drop_scope`` removes all files of a scope."""

    cache: ScopeCache
    claims: list[Callable[[Place], Awaitable[bool]]] = field(default_factory=list, init=False)
    """Asked for a place that no record of a file knows."""
    _looked_at: str = field(default="", init=False)

    # --- scopes -----------------------------------------------------------------------------------------------

    async def drop_gone(self, gone: Gone, drop_scope: DropScope) -> None:
        """Remove the files of scopes that are ``gone``: so many pages of rows each time, and the next ones then.

        Raises StoreUnavailable.
        """
        for _ in range(PAGES):
            rows = await self.cache.store.scan(TABLE, after=self._looked_at)
            for scope in _owners(rows):
                if await gone(scope):
                    await drop_scope(scope.id)
            self._looked_at = rows[-1].key if rows else ""
            if not rows:
                break
        if self.cache.store.shared:
            await self.cache.forget_empty_heads()

    async def first_scopes(self, most: int) -> list[Scope]:
        """Scopes that hold anything, at most so many. Raises StoreUnavailable."""
        found: dict[str, Scope] = {}
        after = ""
        while len(found) < most and (rows := await self.cache.store.scan(TABLE, after=after)):
            found |= {scope.id: scope for scope in _owners(rows)}
            # Behind all rows of the last scope.
            after = f"{rows[-1].key.partition('/')[0]}0"
        return list(found.values())[:most]

    # --- the sweep --------------------------------------------------------------------------------------------

    async def sweep(self, grace: float) -> None:
        """Remove files that no record knows, and that have not changed for ``grace`` seconds. Raises StorageFailed,
        StoreUnavailable.
        """
        before = self.cache.index.now - grace
        if self.cache.store.shared:
            # By the clock that tells how old files are; and what others are writing is renewed within a lease.
            before = await self.cache.files.renew() - max(grace, LEASE)
        swept = await self.cache.files.sweep(partial(self._is_known, {}), before)
        if swept:
            self.cache.log.info("removed files that no record knows", files=swept)

    async def _is_known(self, read: dict[str, dict[str, bytes]], place: Place) -> bool:
        """Tell whether a record, or else a claim, knows a place. ``read`` has the rows of the last scope that was asked
        for."""
        # A file that comes or goes just now has bytes without a row: the next sweep will see.
        if self.cache.is_changing(place.scope) or self.cache.index.knows(place):
            return True
        if place.scope not in read:  # one scope's files are asked for one after another
            read.clear()
            rows = every_row(self.cache.store, TABLE, place.scope)
            read[place.scope] = {row.key: row.value async for row in rows}
        value = read[place.scope].get(record_key(place.scope, place.kind, place.id))
        if value is not None and ((record := _decoded(value)) is None or record.place == place):
            return True  # also by a row of another version: its file is somebody's
        for claim in self.claims:
            if await claim(place):
                return True
        return False


def _owners(rows: list[Row]) -> list[Scope]:
    """The scopes to which these rows belong."""
    found: dict[str, Scope] = {}
    for row in rows:
        scope_id = row.key.partition("/")[0]
        if scope_id not in found and (record := _decoded(row.value)) is not None:
            found[scope_id] = Scope(scope_id, record.owner)
    return list(found.values())


def _decoded(value: bytes) -> FileRecord | None:
    """The record of a row, None for one that this version cannot read."""
    try:
        return decode(value)
    except ValueError:
        return None
