"""Signed links: good for one batch or one file, in time, on every replica."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import CredentialRefused
from adapter.relay.files.signed_urls import TABLE, Credentials
from adapter.state.sqlite import MemoryStore
from adapter.wire.signed_urls import parameters
from tests.relay.relaying import Clock

SCOPE = "0" * 32


async def opened(store: MemoryStore, clock: Clock, configured: bytes | None = None) -> Credentials:
    credentials = Credentials(store, configured=configured, ttl=60.0, clock=clock, page_ttl=60.0)
    await credentials.open()
    return credentials


async def test_secret_is_made_once_for_all_who_share_a_store() -> None:
    """Replicas that start at once agree, and a restart keeps links good; a configured secret is another."""
    store, clock = MemoryStore(), Clock()
    one, two = await asyncio.gather(opened(store, clock), opened(store, clock))
    query = parameters(one.issue("one", SCOPE)[0])
    await two.check("one", query)
    await (await opened(store, clock)).check("one", query)
    with pytest.raises(CredentialRefused):
        await (await opened(store, clock, b"configured")).check("one", query)


async def test_of_many_who_spend_at_once_one_succeeds() -> None:
    """On two replicas; after that it is refused before a body is read."""
    store, clock = MemoryStore(), Clock()
    replicas = [await opened(store, clock), await opened(store, clock)]
    query = parameters(replicas[0].issue("one", SCOPE)[0])
    credential = await replicas[1].check("one", query)
    outcomes = await asyncio.gather(
        *(replica.spend(credential) for replica in replicas * 8), return_exceptions=True
    )
    assert sum(isinstance(outcome, CredentialRefused) for outcome in outcomes) == 15
    for replica in replicas:
        with pytest.raises(CredentialRefused):
            await replica.check("one", query)


async def test_who_spent_may_take_it_back() -> None:
    """A batch that failed after all leaves its credential good for another try."""
    credentials = await opened(MemoryStore(), Clock())
    query = parameters(credentials.issue("one", SCOPE)[0])
    unspend = await credentials.spend(await credentials.check("one", query))
    await unspend()
    await credentials.spend(await credentials.check("one", query))


async def test_nonces_are_kept_until_they_are_worth_nothing() -> None:
    """A spent one stays so for its whole time, on slow clocks too, and is forgotten then."""
    store, clock = MemoryStore(), Clock()
    credentials = await opened(store, clock)
    query = parameters(credentials.issue("one", SCOPE)[0])
    await credentials.spend(await credentials.check("one", query))
    clock.now += 119
    await credentials.expire()
    assert await store.count(TABLE) == 1
    clock.now += 1
    await credentials.expire()
    assert await store.count(TABLE) == 0
