"""Grants as they are kept: sealed rows of the state store, one for each server and principal."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

from adapter.rules.access.grants import Grant, decode_grant, encode_grant
from adapter.rules.access.principals import digest, name_of
from adapter.state.port import Row, every_row
from adapter.state.sealed_rows import SealedRows

TABLE = "grants"

_ID = re.compile(r"[0-9a-f]{64}")


class KeptGrant(NamedTuple):
    """A grant and the version of its row."""

    grant: Grant
    version: int


class ListedGrant(NamedTuple):
    """A row of a list: ``grant`` is None where the key of this adapter does not open it. ``id`` is public."""

    server: str
    id: str
    grant: Grant | None

    @property
    def name(self) -> str | None:
        """The principal as it is shown."""
        return None if self.grant is None else name_of(self.grant.principal)

    def as_data(self) -> dict[str, object]:
        """The grant as JSON, without its tokens; times in Unix seconds. One that cannot be opened has nulls."""
        grant = self.grant
        return {
            "server": self.server,
            "id": self.id,
            "principal": self.name,
            "issuer": None if grant is None else grant.issuer,
            "scope": None if grant is None else grant.scope,
            "obtained": None if grant is None else grant.obtained,
            "renewed": None if grant is None else grant.renewed,
            "expires": None if grant is None else grant.expires,
            "renewable": None if grant is None else grant.refresh is not None,
        }


class GrantStore:
    """Reads and writes grants. All methods raise StoreUnavailable."""

    def __init__(self, rows: SealedRows) -> None:
        self.rows = rows

    async def get(self, server: str, principal: str) -> KeptGrant | None:
        """The grant of a principal for a server."""
        found = await self.rows.get(TABLE, key_of(server, principal))
        if found is None:
            return None
        grant = decode_grant(found[1])
        # The key follows from the principal, and the seal holds the key: this can only differ for a wrong digest.
        if grant is None or grant.principal != principal:
            return None
        return KeptGrant(grant, found[0].version)

    async def put(self, server: str, grant: Grant, *, expected: int | None = None) -> KeptGrant:
        """Write a grant. Raises Conflict."""
        row = await self.rows.put(
            TABLE, key_of(server, grant.principal), encode_grant(grant), expected=expected
        )
        return KeptGrant(grant, row.version)

    async def delete(self, server: str, principal: str, *, expected: int | None = None) -> bool:
        """Forget a grant. Raises Conflict."""
        return await self.rows.delete(TABLE, key_of(server, principal), expected=expected)

    async def listed(self, server: str, grant_id: str) -> ListedGrant | None:
        """The row of that id."""
        if _ID.fullmatch(grant_id) is None:
            return None
        row = await self.rows.store.get(TABLE, f"{server}/{grant_id}")
        return None if row is None else await self._listed(server, row)

    async def delete_listed(self, listed: ListedGrant) -> bool:
        """Forget a grant of a list, also one that cannot be opened."""
        return await self.rows.delete(TABLE, f"{listed.server}/{listed.id}")

    async def all(self, server: str) -> AsyncIterator[ListedGrant]:
        """The grants for a server, in the order of their ids."""
        async for row in every_row(self.rows.store, TABLE, server):
            yield await self._listed(server, row)

    async def _listed(self, server: str, row: Row) -> ListedGrant:
        plain = await self.rows.opened(TABLE, row)
        return ListedGrant(server, row.key.partition("/")[2], None if plain is None else decode_grant(plain))


def key_of(server: str, principal: str) -> str:
    """The key of a grant's row, which tells nothing of the principal."""
    return f"{server}/{digest(principal)}"
