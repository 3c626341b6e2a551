"""Rows that say nothing to who reads the store, and believe nothing of who writes to it."""

from __future__ import annotations

from operator import methodcaller

from adapter.oauth.grants.grant_store import TABLE, GrantStore, key_of
from adapter.state.port import tell_all
from adapter.state.sealed_rows import SealedRows
from tests.oauth.grants.conftest import ALICE, BOB, StartCluster


async def test_no_token_stands_in_the_store(cluster: StartCluster) -> None:
    """Neither tokens nor names can be read in any row."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        tables = ("grants", "grant_links", "grant_states", "oauth_clients")
        rows = [row for table in tables for row in await it.store.scan(table)]
        text = b"".join(row.key.encode() + row.value for row in rows)
        assert rows
        for word in (b"access-", b"refresh-", b"alice", b"registered-"):
            assert word not in text


async def test_a_grant_cannot_be_moved_to_another_principal(cluster: StartCluster) -> None:
    """Who writes to the store copies Alice's row to Bob's place: it does not open there."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        row = await it.store.get(TABLE, key_of("notes", ALICE.principal))
        assert row is not None
        await it.store.put(TABLE, key_of("notes", BOB.principal), row.value)
        await it.store.put(TABLE, key_of("other", ALICE.principal), row.value)
        assert await one.grants.get("notes", BOB.principal) is None
        assert await one.grants.get("other", ALICE.principal) is None
        assert await one.credentials.authorization(BOB) is None


async def test_another_secret_opens_nothing(cluster: StartCluster) -> None:
    """After core.secret was changed the grants are asked for anew; a list still shows that they are there."""
    async with cluster() as it:
        await it.replica().give(it.issuer)
        other = it.replica(secret=b"t" * 32)
        assert await other.credentials.authorization(ALICE) is None
        (listed,) = [each async for each in other.grants.all("notes")]
        assert listed.grant is None
        assert await other.grants.delete_listed(listed)


async def test_a_row_that_was_changed_does_not_open(cluster: StartCluster) -> None:
    """One bit is enough."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        key = key_of("notes", ALICE.principal)
        row = await it.store.get(TABLE, key)
        assert row is not None
        await it.store.put(TABLE, key, row.value[:-1] + bytes([row.value[-1] ^ 1]))
        assert await one.grants.get("notes", ALICE.principal) is None


async def test_the_key_follows_a_secret_that_changed(cluster: StartCluster) -> None:
    """A store that stood in for another one had a secret of its own; when the first is back, its secret counts."""
    async with cluster() as it:
        await it.replica().give(it.issuer)
        secrets, offered = [b"s" * 32, b"of the store that stood in"], []

        async def secret(held: bytes | None) -> bytes:
            offered.append(held)
            return secrets.pop()

        rows = SealedRows(it.store, secret)
        assert await GrantStore(rows).get("notes", ALICE.principal) is None
        tell_all(it.store.listeners, methodcaller("rows_unknown"))
        assert await GrantStore(rows).get("notes", ALICE.principal) is not None
        assert offered == [None, b"of the store that stood in"]
