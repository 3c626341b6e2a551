"""Grants are renewed once for all, and a refresh token is not lost where that can be helped."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from adapter.errors import AuthorizationFailed, GrantRequired, StoreUnavailable
from adapter.oauth.grants.grant_store import TABLE
from adapter.state.fallback import FallbackStore
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from tests.oauth.grants.conftest import ALICE, StartCluster
from tests.state.shared import ReplicaStore, SharedMemory
from tests.waiting import until


class FailingStore(ReplicaStore):
    """A store whose writes of grants fail for a while, or are done and seem to fail."""

    def __init__(self, rows: MemoryStore) -> None:
        memory = SharedMemory()
        memory.rows = rows
        super().__init__(memory)
        self.failures = 0
        self.unheard = 0

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        if table == TABLE and self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable
        if table == TABLE:
            self.swallows, self.unheard = self.unheard, 0
        return await super().put(table, key, value, expected=expected, due=due)


async def test_ten_calls_at_once_renew_once(cluster: StartCluster) -> None:
    """All of them wait for the same answer and go on with the same token."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        it.clock.now += 3600
        values = await asyncio.gather(*(one.credentials.authorization(ALICE) for _ in range(10)))
        assert len(set(values)) == 1
        assert len(it.issuer.requests) == 2


async def test_two_replicas_renew_once(cluster: StartCluster) -> None:
    """The second waits for the first, so that no refresh token is sent twice and its family ended."""
    async with cluster() as it:
        one, two = it.replica(), it.replica()
        await one.give(it.issuer)
        await two.credentials.authorization(ALICE)
        it.clock.now += 3600
        it.issuer.held = asyncio.Event()
        calls = [
            asyncio.ensure_future(each.credentials.authorization(ALICE))
            for each in (one, two)
            for _ in range(5)
        ]
        await it.issuer.reached(2)
        it.issuer.held.set()
        assert len(set(await asyncio.gather(*calls))) == 1
        assert (len(it.issuer.requests), it.issuer.reuses) == (2, 0)


async def test_a_renewed_token_is_written_although_its_caller_has_left(cluster: StartCluster) -> None:
    """The client hangs up between the request and the answer; the next call has the new token all the same."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        it.clock.now += 3600
        it.issuer.held = asyncio.Event()
        call = asyncio.ensure_future(one.credentials.authorization(ALICE))
        await it.issuer.reached(2)
        call.cancel()
        it.issuer.held.set()
        await one.renewal.close(5)
        value = await it.replica().credentials.authorization(ALICE)
        assert value is not None
        assert value.removeprefix("Bearer ") in it.issuer.tokens
        assert len(it.issuer.requests) == 2


async def test_a_store_that_fails_for_a_moment_costs_no_grant(cluster: StartCluster) -> None:
    """The new refresh token is written again and again, since the old one is worth nothing any more."""
    async with cluster() as it:
        store = FailingStore(it.store)
        one = it.replica(store)
        await one.give(it.issuer)
        it.clock.now += 3600
        store.failures = 3
        assert await one.credentials.authorization(ALICE) is not None
        it.clock.now += 3600
        assert await it.replica().credentials.authorization(ALICE) is not None
        assert it.issuer.reuses == 0


async def test_a_new_grant_outlives_a_store_that_fails_for_a_moment(cluster: StartCluster) -> None:
    """The person has consented, and the code that tells so is used up."""
    async with cluster() as it:
        store = FailingStore(it.store)
        store.failures = 3
        await it.replica(store).give(it.issuer)
        assert await it.replica().credentials.authorization(ALICE) is not None


async def test_a_store_that_is_away_for_longer_costs_no_grant(cluster: StartCluster) -> None:
    """Callers are told after some attempts; the new refresh token is written as soon as the store takes it."""
    async with cluster() as it:
        store = FailingStore(it.store)
        one = it.replica(store)
        await one.give(it.issuer)
        it.clock.now += 3600
        store.failures = 1000
        one.renewal.pause = 0.01
        with pytest.raises(StoreUnavailable):
            await one.credentials.authorization(ALICE)
        with pytest.raises(StoreUnavailable):
            await one.credentials.authorization(ALICE)
        store.failures = 0
        await one.renewal.close(5)
        value = await it.replica().credentials.authorization(ALICE)
        assert value is not None
        assert it.issuer.tokens[value.removeprefix("Bearer ")] == "alice"
        assert (len(it.issuer.requests), it.issuer.reuses, it.issuer.revoked) == (2, 0, [])


async def test_the_process_ends_although_its_store_does_not_come_back(cluster: StartCluster) -> None:
    """What cannot be written in the time of the end is given up."""
    async with cluster() as it:
        store = FailingStore(it.store)
        one = it.replica(store)
        await one.give(it.issuer)
        it.clock.now += 3600
        store.failures = 1_000_000
        one.renewal.pause = 0.01
        with pytest.raises(StoreUnavailable):
            await one.credentials.authorization(ALICE)
        await one.renewal.close(0.01)
        assert one.renewal.under_way == []


async def test_a_write_that_only_seems_to_fail_costs_no_grant(cluster: StartCluster) -> None:
    """The store has written the row and the answer was lost: its own row is no conflict that revokes the tokens."""
    async with cluster() as it:
        store = FailingStore(it.store)
        one = it.replica(store)
        await one.give(it.issuer)
        it.clock.now += 3600
        store.unheard = 1
        value = await one.credentials.authorization(ALICE)
        assert value is not None
        assert it.issuer.revoked == []
        assert await it.replica().credentials.authorization(ALICE) == value


async def test_replicas_without_their_store_do_not_use_one_refresh_token_twice(cluster: StartCluster) -> None:
    """Each goes on with the rows that it remembers; leases among them are nobody else's, so nothing is renewed."""
    async with cluster() as it:
        stores = [FailingStore(it.store) for _ in range(2)]
        one, two = (it.replica(FallbackStore(store, structlog.get_logger())) for store in stores)
        await one.give(it.issuer)
        await two.credentials.authorization(ALICE)
        for store in stores:
            store.down = True
        it.clock.now += 3575
        for each in (one, two):
            assert await each.credentials.authorization(ALICE) is not None
        it.clock.now += 25
        for each in (one, two):
            with pytest.raises(StoreUnavailable):
                await each.credentials.authorization(ALICE)
        assert (len(it.issuer.requests), it.issuer.reuses) == (1, 0)
        assert await it.replica().credentials.authorization(ALICE) is not None


async def test_a_clock_that_goes_back_does_not_keep_a_refused_token(cluster: StartCluster) -> None:
    """A token of the future is not one that was renewed just now."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        one.credentials.just_renewed = 5.0
        value = await one.credentials.authorization(ALICE)
        it.clock.now -= 3600
        assert await one.credentials.refused(ALICE, value, None)
        assert not await one.credentials.refused(ALICE, await one.credentials.authorization(ALICE), None)
        assert len(it.issuer.requests) == 2


async def test_killed_between_answer_and_write(cluster: StartCluster) -> None:
    """The new tokens are lost with the process: the next one is refused, forgets the grant and asks the person."""
    async with cluster() as it:
        store = FailingStore(it.store)
        killed = it.replica(store)
        await killed.give(it.issuer)
        it.clock.now += 3600
        store.failures = 1000
        call = asyncio.ensure_future(killed.credentials.authorization(ALICE))
        await until(lambda: store.failures != 1000)
        for task in killed.renewal.under_way:
            task.cancel()
        await asyncio.gather(call, return_exceptions=True)
        other = it.replica()
        for row in await it.store.scan("leases"):
            await it.store.delete("leases", row.key)
        assert await other.credentials.authorization(ALICE) is None
        with pytest.raises(GrantRequired):
            await other.credentials.demand(ALICE)


async def test_a_server_that_is_away_ends_no_grant(cluster: StartCluster) -> None:
    """The old token goes on until it ends; then the call says what is wrong, and the grant stays."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        await it.issuer.stop()
        it.clock.now += 3575
        assert await one.credentials.authorization(ALICE) is not None
        it.clock.now += 100
        with pytest.raises(AuthorizationFailed):
            await one.credentials.authorization(ALICE)
        await it.issuer.start()
        assert await one.credentials.authorization(ALICE) is not None


async def test_a_server_that_is_silent_holds_no_call_up(cluster: StartCluster) -> None:
    """While the old token is good a call waits for a moment only; the renewal goes on without it."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        old = await one.credentials.authorization(ALICE)
        it.clock.now += 3575
        it.issuer.held = asyncio.Event()
        async with asyncio.timeout(8):
            assert await one.credentials.authorization(ALICE) == old
        it.issuer.held.set()
        await one.renewal.close(5)
        assert await one.credentials.authorization(ALICE) != old
        assert len(it.issuer.requests) == 2


async def test_a_grant_that_is_revoked_meanwhile_stays_revoked(cluster: StartCluster) -> None:
    """An operator revokes while a renewal is under way: the new tokens are not kept, but revoked."""
    async with cluster() as it:
        one = it.replica()
        await one.give(it.issuer)
        it.clock.now += 3600
        it.issuer.held = asyncio.Event()
        call = asyncio.ensure_future(one.credentials.authorization(ALICE))
        await it.issuer.reached(2)
        await it.replica().grants.delete("notes", ALICE.principal)
        it.issuer.held.set()
        assert await call is None
        assert len(it.issuer.revoked) == 1
