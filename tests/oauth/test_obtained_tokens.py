"""Tokens are kept while they are good, renewed before they end, and asked for once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import CredentialsMissing, StoreUnavailable
from adapter.oauth.obtained_tokens import (
    MARGIN,
    RENEWED_AT,
    RETRY,
    TABLE,
    UNKNOWN_LIFE,
    ObtainedTokens,
    SharedTokens,
)
from adapter.relay.cleanup import Lease
from adapter.rules.access.grants import Tokens
from adapter.state.port import Row, Store
from adapter.state.sealed_rows import SealedRows
from adapter.state.sqlite import MemoryStore
from tests.pipeline.issuer import Clock


class Issuer:
    """Issues ``1``, ``2`` and so on for ``life`` seconds while ``go`` is set, or fails."""

    def __init__(self, life: float | None = 1000.0) -> None:
        self.life = life
        self.count = 0
        self.go = asyncio.Event()
        self.go.set()
        self.begun = asyncio.Event()
        self.failing = False

    async def __call__(self) -> Tokens:
        self.begun.set()
        self.count += 1
        number = str(self.count)
        await self.go.wait()
        if self.failing:
            raise CredentialsMissing(f"No token {number}.")
        return Tokens(number, None, self.life, None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def tokens(clock: Clock, told: list[str]) -> ObtainedTokens:
    return ObtainedTokens(clock, teller(told))


def teller(told: list[str]) -> Callable[..., None]:
    def tell(*, why: str) -> None:
        told.append(why)

    return tell


async def settled(tokens: ObtainedTokens) -> None:
    """Wait until no request is under way."""
    async with asyncio.timeout(20):
        while tokens._flights:
            await asyncio.gather(*tokens._flights.values(), return_exceptions=True)


async def test_token_is_used_until_it_has_to_be_renewed(
    tokens: ObtainedTokens, issuer: Issuer, clock: Clock
) -> None:
    """Then the old one is used on while the new one is on the way, so no call waits for it."""
    assert [await tokens.get("", issuer) for _ in range(3)] == ["1", "1", "1"]
    clock.now += issuer.life * RENEWED_AT[0] - 1 if issuer.life else 0
    assert await tokens.get("", issuer) == "1" and issuer.count == 1
    clock.now += 1000.0 * (RENEWED_AT[1] - RENEWED_AT[0]) + 2
    issuer.go.clear()
    assert [await tokens.get("", issuer) for _ in range(3)] == ["1", "1", "1"]
    await issuer.begun.wait()
    issuer.go.set()
    await settled(tokens)
    assert await tokens.get("", issuer) == "2" and issuer.count == 2


async def test_token_at_its_end_is_waited_for(tokens: ObtainedTokens, issuer: Issuer, clock: Clock) -> None:
    """It would be over before it arrives at the upstream."""
    await tokens.get("", issuer)
    clock.now += 1000.0 - MARGIN
    assert await tokens.get("", issuer) == "2"


async def test_outage_does_not_matter_while_a_token_is_good(
    tokens: ObtainedTokens, issuer: Issuer, clock: Clock, told: list[str]
) -> None:
    """The old one is used to its end; then all are told the same, and the server is not asked for each."""
    await tokens.get("", issuer)
    issuer.failing = True
    clock.now += 900
    assert await tokens.get("", issuer) == "1"
    await settled(tokens)
    assert await tokens.get("", issuer) == "1" and issuer.count == 2
    clock.now += 100
    for _ in range(3):
        with pytest.raises(CredentialsMissing, match="No token 3"):
            await tokens.get("", issuer)
    assert issuer.count == 3 and told == ["No token 2."]
    clock.now += RETRY
    issuer.failing = False
    assert await tokens.get("", issuer) == "4"


async def test_those_who_get_no_token_push_out_nobody(issuer: Issuer, clock: Clock) -> None:
    """Failures are kept apart: however many there are, a token that is good stays."""
    tokens = ObtainedTokens(clock, teller([]), most=3)
    assert await tokens.get("a", issuer) == "1"
    issuer.failing = True
    for stranger in range(5):
        with pytest.raises(CredentialsMissing):
            await tokens.get(f"stranger {stranger}", issuer)
    assert await tokens.get("a", issuer) == "1"


async def test_caller_who_leaves_ends_nothing(tokens: ObtainedTokens, issuer: Issuer) -> None:
    """The others get the token that it was the first to ask for."""
    issuer.go.clear()
    first = asyncio.create_task(tokens.get("", issuer))
    await issuer.begun.wait()
    other = asyncio.create_task(tokens.get("", issuer))
    first.cancel()
    issuer.go.set()
    assert await other == "1" and issuer.count == 1


async def test_token_without_a_time_is_used_for_a_while(
    tokens: ObtainedTokens, issuer: Issuer, clock: Clock
) -> None:
    """Until the upstream refuses it, or an hour has passed."""
    issuer.life = None
    await tokens.get("", issuer)
    clock.now += UNKNOWN_LIFE * RENEWED_AT[0] - 1
    assert await tokens.get("", issuer) == "1"


async def test_token_that_ends_at_once_is_used_once(tokens: ObtainedTokens, issuer: Issuer) -> None:
    """Whoever waits for it gets it, and the next call asks again."""
    issuer.life = 1.0
    assert [await tokens.get("", issuer) for _ in range(2)] == ["1", "2"]


async def test_clock_that_goes_back_refuses_no_renewal(
    tokens: ObtainedTokens, issuer: Issuer, clock: Clock
) -> None:
    """A refusal and a failure of the future count as over, and not for as long as the clock was ahead."""
    assert tokens.refused("", await tokens.get("", issuer))
    assert await tokens.get("", issuer) == "2"
    clock.now -= 3600
    assert tokens.refused("", "2")
    issuer.failing = True
    with pytest.raises(CredentialsMissing):
        await tokens.get("", issuer)
    clock.now -= 3600
    issuer.failing = False
    assert await tokens.get("", issuer) == "4"


async def test_no_text_of_the_tokens_holds_one(issuer: Issuer, clock: Clock) -> None:
    """An event loop that tells of a task shows its result."""
    issuer.count = 41_000_000_000
    tokens = ObtainedTokens(clock, teller([]))
    waiting = asyncio.create_task(tokens.get("", issuer))
    await issuer.begun.wait()
    (flight,) = tokens._flights.values()
    await waiting
    assert "41000000001" not in repr(flight) + repr(tokens._known.values)


async def test_closing_gives_up_what_is_on_the_way(tokens: ObtainedTokens, issuer: Issuer) -> None:
    """Nobody is left to wait for it."""
    issuer.go.clear()
    waiting = asyncio.create_task(tokens.get("", issuer))
    await issuer.begun.wait()
    await tokens.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# --- replicas ---------------------------------------------------------------------------------------------------


def replica(store: Store, clock: Clock, secret: bytes = b"s" * 32) -> ObtainedTokens:
    async def key(_: bytes | None) -> bytes:
        return secret

    shared = SharedTokens(SealedRows(store, key), lambda name: Lease(store, name, 15.0), "raw")
    return ObtainedTokens(clock, teller([]), shared)


async def test_token_in_the_store_is_sealed(issuer: Issuer, clock: Clock) -> None:
    """Whoever reads the store cannot use it, and a replica with another secret asks for its own."""
    store = MemoryStore()
    issuer.count = 41_000_000_000
    found = await replica(store, clock).get("", issuer)
    (row,) = await store.scan(TABLE)
    assert found.encode() not in row.value
    assert await replica(store, clock, b"t" * 32).get("", issuer) == "41000000002"


async def test_refused_token_is_not_taken_from_the_store(issuer: Issuer, clock: Clock) -> None:
    """The replica whose upstream refused it asks for another one, which the others then find."""
    store = MemoryStore()
    one, other = replica(store, clock), replica(store, clock)
    assert (await one.get("", issuer), await other.get("", issuer)) == ("1", "1")
    assert one.refused("", "1") and await one.get("", issuer) == "2"
    assert other.refused("", "1") and await other.get("", issuer) == "2" and issuer.count == 2


async def test_store_that_fails_is_no_failure(issuer: Issuer, clock: Clock) -> None:
    """Each replica then asks for itself."""

    class Failing(MemoryStore):
        async def get(self, table: str, key: str) -> Row | None:
            raise StoreUnavailable

    replicas = [replica(Failing(), clock) for _ in range(2)]
    assert [await each.get("", issuer) for each in replicas] == ["1", "2"]
