"""What a server became is remembered until an operator accepts it, whatever later sessions start from."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from adapter.errors import BoundByFile, CatalogueDrifted
from adapter.relay.tools.catalogue_cache import LOOKED_UP
from adapter.relay.tools.pins import CATALOGUES, DRIFTS, GRACE, PINS, PinStatus
from adapter.rules.access.principals import Caller
from adapter.rules.tools.catalogue import Catalogue, catalogue_of
from adapter.rules.tools.definitions import read_tool
from adapter.rules.tools.drift import MOST, RememberedDrift
from adapter.state.sqlite import MemoryStore
from tests.relay.guarding import (
    CLICK,
    EVIL,
    SHOOT,
    Guarded,
    Json,
    Mode,
    Refused,
    Shop,
    guarded,
    listed,
    opened,
    tool,
)

ANN, BOB = Caller("ann:0123456789abcdef"), Caller("bob:fedcba9876543210")
CONSOLE = Caller("ann:0123456789abcdef", "http")


async def status(front: Guarded) -> PinStatus:
    return await front.baselines.status()


async def accept(front: Guarded) -> PinStatus:
    """An operator accepts the tools of now."""
    now = (await status(front)).now
    assert now is not None
    return await front.baselines.accept(now.digest, "ann")


async def remembered(front: Guarded) -> RememberedDrift:
    found = (await status(front)).remembered
    assert found is not None
    return found


@pytest.mark.parametrize("mode", ["warn", "block"])
async def test_drift_outlives_the_sessions_that_met_it(mode: Mode) -> None:
    """A new session starts from the tools of now, and operators are told all the same: what, when, who, how many."""
    shop = Shop(CLICK, SHOOT)
    async with guarded(shop, mode, caller=ANN) as front:
        old = [await front.open() for _ in range(3)]
        for session in old:
            await front.list(session)
        assert (await status(front)).remembered is None and await front.store.count(DRIFTS) == 0
        shop.tools = [EVIL, SHOOT]
        front.clock.now += 60
        for session in old:
            if mode == "warn":
                await front.list(session)
            else:
                with pytest.raises(Refused):
                    await front.list(session)
        found = await remembered(front)
        assert (found.met[0].first.at, found.sessions, found.met[0].first.by) == (front.clock.now, 3, "ann")
        assert (
            found.met[0].first.summary.counts["changed"] == 1
            and "click (description)" in found.met[0].first.summary.sentence
        )
        assert not any(session in str(found.as_data()) for session in old)
        # Whoever comes now has nothing to be warned of, and counts among those who met it.
        front.caller = BOB
        assert await front.list(await front.open()) == [EVIL, SHOOT]
        found = await remembered(front)
        assert (found.sessions, found.met[0].first.by) == (4, "ann")
        # The same session again is none of them.
        await front.list(await front.open())
        await front.list(await front.open())
        assert (await remembered(front)).sessions == 6


async def test_a_change_that_no_session_lived_through_is_noticed(shop: Shop) -> None:
    """Most sessions are short, and most servers change between two of them."""
    store = MemoryStore()
    async with guarded(shop, store=store) as front:
        await front.list(await front.open())
    shop.tools = [EVIL]
    async with guarded(shop, store=store) as front:
        assert await front.list(await front.open()) == [EVIL]
        found = await status(front)
        assert found.origin == "first_seen" and found.drifted == 1 and found.remembered is not None
        assert not found.remembered.met[0].first.own


async def test_tools_that_are_what_they_were_again_were_others(shop: Shop) -> None:
    """Nothing is forgotten because the server took it back."""
    async with opened(shop, "warn") as (front, session):
        for shop.tools in ([CLICK], [EVIL], [CLICK]):
            await front.list(session)
        found = await status(front)
        assert found.drifted == 0 and not found.accepted
        assert found.remembered is not None and len(found.remembered.met) == 1


async def test_accepting_settles_what_was_met(shop: Shop, store: MemoryStore) -> None:
    """Also where the tools are what they were; what comes after is met anew, in every process."""
    async with guarded(shop, "warn", store=store) as front, guarded(shop, "warn", store=store) as replica:
        session = await front.open()
        for shop.tools in ([CLICK], [EVIL], [CLICK]):
            await front.list(session)
        done = await accept(replica)
        assert done.remembered is None and done.accepted and await store.count(DRIFTS) == 0
        for process in (front, replica):
            process.clock.now += 60
            process.steady.now += 1000
        shop.tools = [EVIL]
        await front.list(session)
        assert (await remembered(replica)).sessions == 1


async def test_accepting_what_it_became_makes_that_the_measure(shop: Shop) -> None:
    """The catalogue that was met is the baseline, and the first one would be drift from it."""
    async with opened(shop, "warn") as (front, session):
        for shop.tools in ([CLICK], [EVIL]):
            await front.list(session)
        accepted = await accept(front)
        front.steady.now += LOOKED_UP + 1
        assert (await front.list(session))[0]["description"] == EVIL["description"]
        assert (await status(front)).remembered is None
        shop.tools = [CLICK]
        assert (await front.list(session))[0]["description"].startswith("[Warning")
        assert accepted.now is not None and (await remembered(front)).baseline == accepted.now.digest


async def test_what_was_met_is_bounded_and_shared(shop: Shop, store: MemoryStore) -> None:
    """A server that is another each time is told by its first catalogues and its last; two processes count together."""
    async with guarded(shop, "warn", store=store) as one, guarded(shop, "warn", store=store) as other:
        sessions = await one.open(), await other.open()
        await asyncio.gather(one.list(sessions[0]), other.list(sessions[1]))
        for number in range(MOST + 4):
            shop.tools = [tool("click", f"Does {number}.")]
            await asyncio.gather(one.list(sessions[0]), other.list(sessions[1]))
        found = await remembered(other)
        assert len(found.met) == MOST and found.more == 4 and found.sessions == 2 * MOST
        rows = await store.scan(DRIFTS)
        assert len(rows) == 1 and len(rows[0].value) < 100_000


async def test_many_sessions_at_once_are_all_counted() -> None:
    """They are written down in a few writes."""
    shop, store = Shop(CLICK), WritesCounted()
    async with guarded(shop, "warn", store=store) as front:
        sessions = [await front.open() for _ in range(200)]
        await asyncio.gather(*map(front.list, sessions))
        shop.tools = [EVIL]
        await asyncio.gather(*map(front.list, sessions))
        assert (await remembered(front)).sessions == 200
        assert store.writes <= 10


class WritesCounted(MemoryStore):
    """A store that waits with each write, as a disk does, and counts those of drift."""

    writes = 0

    async def put(self, table: str, *more: Any, **others: Any) -> Any:
        await asyncio.sleep(0)
        self.writes += table == DRIFTS
        return await super().put(table, *more, **others)


async def test_other_members_are_no_drift_to_remember(shop: Shop) -> None:
    """No model is told of them."""
    async with opened(shop, "warn") as (front, session):
        for shop.tools in ([CLICK], [{**CLICK, "_meta": {"a": 1}}]):
            await front.list(session)
        assert (await status(front)).remembered is None


async def test_a_server_with_other_tools_for_each_user_has_not_drifted(shop: Shop) -> None:
    """As soon as that is known, only what a user saw change is remembered."""
    async with guarded(shop) as front:
        one, other = await front.open(), await front.open()
        shop.per_session["user-2"] = [SHOOT]
        found = await front.relaying.sessions.find(other, "one", "anonymous")
        found.upstream_id = "user-2"
        await front.list(one)
        await front.list(other)
        assert (await remembered(front)).sessions == 1
        await front.call(one, "click")
        assert (await status(front)).remembered is None
        shop.tools = [EVIL]
        with pytest.raises(Refused):
            await front.list(one)
        assert (await remembered(front)).met[0].first.own


# --- baseline: server -----------------------------------------------------------------------------------------


async def test_every_session_may_start_from_what_anybody_saw_first(shop: Shop, store: MemoryStore) -> None:
    """With ``baseline: server`` no new session gets around it, nor does a restart, until an operator accepts."""
    async with guarded(shop, baseline="server", store=store) as front:
        await front.list(await front.open())
    shop.tools = [EVIL]
    async with guarded(shop, baseline="server", store=store) as front:
        for _ in range(3):
            session = await front.open()
            with pytest.raises(Refused) as refused:
                await front.list(session)
            assert str(refused.value).endswith("An operator has to accept them.")
            with pytest.raises(CatalogueDrifted):
                await front.call(session, "click")
        assert await store.count(PINS) == 0
        await accept(front)
        assert await front.list(session) == [EVIL]
        assert await front.list(await front.open()) == [EVIL]


async def test_of_two_processes_the_first_says_what_was_first(shop: Shop, store: MemoryStore) -> None:
    """Whichever saw the server first, both hold their sessions against that."""
    async with (
        guarded(shop, baseline="server", store=store) as one,
        guarded(shop, baseline="server", store=store) as other,
    ):
        await one.list(await one.open())
        shop.tools = [EVIL]
        with pytest.raises(Refused):
            await other.list(await other.open())


# --- callers over HTTP ----------------------------------------------------------------------------------------


async def test_asking_twice_over_http_moves_no_baseline(shop: Shop) -> None:
    """A page that tries again in a new session of its own is refused as before, and so is the tool API."""
    async with guarded(shop, caller=CONSOLE) as front:
        assert await front.list(await front.open()) == [CLICK]
        shop.tools = [EVIL]
        for _ in range(3):
            session = await front.open()
            with pytest.raises(Refused) as refused:
                await front.list(session)
            assert str(refused.value).endswith("An operator has to accept them.")
            with pytest.raises(CatalogueDrifted):
                await front.call(session, "click")
        found = await remembered(front)
        # All of that was one caller.
        assert (found.sessions, found.met[0].first.by) == (1, "ann")
        # An agent's own session starts from the tools of then, as configured.
        front.caller = ANN
        assert await front.list(await front.open()) == [EVIL]


# --- lock files -----------------------------------------------------------------------------------------------


def locked(*tools: Json) -> Catalogue:
    read = [read_tool(orjson.dumps(each)) for each in tools]
    return catalogue_of([each for each in read if each is not None])


async def test_drift_from_a_lock_file_is_settled_where_the_server_is_back() -> None:
    """Until then only another file helps."""
    shop, lock = Shop(EVIL), locked(CLICK)
    async with listed(shop, "warn", lock=lock) as (front, session):
        found = await status(front)
        assert found.remembered is not None and found.origin == "lock" and found.now is not None
        with pytest.raises(BoundByFile):
            await front.baselines.accept(found.now.digest, "ann")
        shop.tools = [CLICK]
        await front.list(session)
        assert (await status(front)).remembered is not None
        assert (await front.baselines.accept(lock.digest, "ann")).remembered is None


# --- catalogues in the store ----------------------------------------------------------------------------------


async def test_catalogues_that_nothing_refers_to_are_taken_away(shop: Shop, store: MemoryStore) -> None:
    """What is pinned, accepted, first, last or met stays for as long as it is; the rest goes after some hours."""
    async with listed(shop, "warn", store=store) as (front, session):
        for number in range(MOST + 10):
            shop.tools = [tool("click", f"Does {number}.")]
            await front.list(session)
        assert await store.count(CATALOGUES) == MOST + 11
        await front.pins.tidy(alive)
        front.clock.now += GRACE / 2
        await front.pins.tidy(alive)
        assert await store.count(CATALOGUES) == MOST + 11
        front.clock.now += GRACE / 2 + 1
        await front.pins.tidy(alive)
        # The first, which is the session's pin too, and those that were met, the last of which is the last seen.
        assert await store.count(CATALOGUES) == MOST + 1
        assert (await status(front)).drifted == 1
        await accept(front)
        front.clock.now += 3 * GRACE
        await front.pins.tidy(alive)
        front.clock.now += 3 * GRACE
        await front.pins.tidy(gone)
        front.clock.now += 3 * GRACE
        await front.pins.tidy(gone)
        assert await store.count(CATALOGUES) == 2


async def alive(_: object) -> bool:
    return False


async def gone(_: object) -> bool:
    return True


async def test_a_catalogue_that_is_seen_again_stays(shop: Shop, store: MemoryStore) -> None:
    """It was due, and is written anew before anybody is pinned to it."""
    async with guarded(shop, "warn", store=store) as front, guarded(shop, "warn", store=store) as other:
        await front.list(await front.open())
        shop.tools = [EVIL]
        await front.list(await front.open())
        accepted = await accept(front)
        front.clock.now = other.clock.now = front.clock.now + 10 * GRACE
        await other.list(await other.open())
        await front.pins.tidy(gone)
        found = await status(other)
        assert found.now is not None and found.now == accepted.now and found.holds


async def test_catalogues_of_earlier_versions_get_their_time_too(store: MemoryStore) -> None:
    """They have none when they are met first."""
    for number in range(10):
        await store.put(CATALOGUES, f"digest-{number}", b"x")
    async with guarded(Shop(), store=store) as front:
        await front.pins.tidy(alive)
        assert await store.count(CATALOGUES) == 10
        front.clock.now += GRACE + 1
        await front.pins.tidy(alive)
        assert await store.count(CATALOGUES) == 0
