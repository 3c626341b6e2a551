"""Signed links: good for one batch or one file, in time, on every replica."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import CredentialRefused
from adapter.relay.files.signed_urls import TABLE, Credentials
from adapter.state.memory import MemoryStore
from adapter.wire.signed_urls import parameters
from tests.relay.relaying import Clock

SCOPE = "0" * 32
FILE = "f" * 32


async def opened(store: MemoryStore, clock: Clock, configured: bytes | None = None) -> Credentials:
    credentials = Credentials(store, configured=configured, ttl=60.0, clock=clock)
    await credentials.open()
    return credentials


async def test_credential_is_good_at_its_server_for_its_time() -> None:
    """The check gives back whose files may come; elsewhere or later it is refused."""
    clock = Clock()
    credentials = await opened(MemoryStore(), clock)
    query, expires = credentials.issue("one", SCOPE)
    assert expires == clock() + 60
    credential = await credentials.check("one", parameters(query))
    assert (credential.server, credential.scope) == ("one", SCOPE)
    with pytest.raises(CredentialRefused):
        await credentials.check("two", parameters(query))
    clock.now += 60
    with pytest.raises(CredentialRefused):
        await credentials.check("one", parameters(query))


async def test_any_change_to_a_link_is_refused() -> None:
    """Every parameter is signed, and none may be missing."""
    credentials = await opened(MemoryStore(), Clock())
    query = parameters(credentials.issue("one", SCOPE)[0])
    for name in query:
        with pytest.raises(CredentialRefused):
            await credentials.check("one", query | {name: query[name] + "0"})
        with pytest.raises(CredentialRefused):
            await credentials.check("one", {other: query[other] for other in query if other != name})


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


@pytest.mark.parametrize("changed", ["purpose", "server", "scope", "file", "time", "nothing"])
async def test_link_to_a_file_is_for_that_file_alone(changed: str) -> None:
    """Another purpose, server, scope or file, or a second too late, is refused."""
    clock = Clock()
    credentials = await opened(MemoryStore(), clock)
    query = parameters(credentials.file_query("download", "one", SCOPE, FILE, clock() + 59.5))
    if changed == "time":
        clock.now += 60
    asked = {"purpose": "download", "server": "one", "scope": SCOPE, "file": FILE}
    if changed in asked:
        asked[changed] = "delivery"
    purpose, server, scope, file_id = asked.values()
    if changed == "nothing":
        credentials.check_file(purpose, server, scope, file_id, query)
    else:
        with pytest.raises(CredentialRefused):
            credentials.check_file(purpose, server, scope, file_id, query)
