"""The pin of a session that ends soon is never written, and that of any other is what its first call saw."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from adapter.relay.tools.pins import PINS
from adapter.rules.access.principals import Caller, session_scope
from adapter.rules.access.sessions import session_key
from adapter.state.port import Row
from adapter.state.sqlite import MemoryStore
from tests.relay.guarding import CLICK, EVIL, SHOOT, Guarded, Shop, guarded

WARNING = "[Warning"


class PinsCounted(MemoryStore):
    """A store that counts the pins that are written, also those that are gone by now."""

    pinned = 0

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        self.pinned += table == PINS
        return await super().put(table, key, value, expected=expected, due=due)


async def calls_once(front: Guarded) -> str:
    """A new session that has called a tool."""
    session = await front.open()
    await front.call(session, "click")
    return session


def scope_id(session: str) -> str:
    return session_scope(b"", session_key(session)).id


def ends(front: Guarded, session: str) -> None:
    front.cache.end(scope_id(session))


async def waiting_pin(front: Guarded) -> str:
    """A session whose pin is still to be written. One before it has been pinned, so that the tools are known."""
    await calls_once(front)
    await front.idle()
    return await calls_once(front)


async def test_session_that_ends_soon_has_no_pin() -> None:
    """Those that go on have theirs a moment later, however many they are."""
    store = PinsCounted()
    async with guarded(Shop(CLICK), "warn", store=store) as front:
        await calls_once(front)
        await front.idle()
        assert store.pinned == 1
        for number in range(60):
            session = await calls_once(front)
            if number % 3:
                ends(front, session)
        assert store.pinned == 1
        await front.idle()
        assert store.pinned == 21


async def test_pin_is_what_was_offered_at_the_first_call(shop: Shop) -> None:
    """The tools may change before the pin is written; the session is warned of that."""
    async with guarded(shop, "warn") as front:
        session = await waiting_pin(front)
        shop.tools = [EVIL]
        front.cache.changed()
        await front.idle()
        assert (await front.list(session))[0]["description"].startswith(WARNING)


async def test_stop_writes_the_pins_that_wait(shop: Shop, store: MemoryStore) -> None:
    """A session that goes on in the next process starts from the tools that it called."""
    async with guarded(shop, "warn", store=store) as front:
        session = await waiting_pin(front)
        await asyncio.sleep(0)
        assert await store.count(PINS) == 1
    assert await store.get(PINS, f"one/{scope_id(session)}") is not None


async def test_stop_asks_no_server_for_its_tools(shop: Shop, store: MemoryStore) -> None:
    """They have changed since the call, and the server may never answer; the pin is what the call saw."""
    async with guarded(shop, "warn", store=store) as front:
        session = await waiting_pin(front)
        await asyncio.sleep(0)
        lists = shop.lists
        front.cache.changed()
    assert await store.get(PINS, f"one/{scope_id(session)}") is not None
    assert shop.lists == lists


async def listed_later(front: Guarded) -> str:
    """A session that has listed the tools, and whose pin is still to be written. One before it was pinned."""
    await front.list(await front.open())
    await front.idle()
    session = await front.open()
    await front.list(session)
    return session


async def test_session_that_lists_and_ends_soon_has_no_pin() -> None:
    """The list leaves before the pin is written, and a session that goes on has it a moment later."""
    store = PinsCounted()
    async with guarded(Shop(CLICK), "warn", store=store) as front:
        ends(front, await listed_later(front))
        await front.list(await front.open())
        assert store.pinned == 1
        await front.idle()
        assert store.pinned == 2


@pytest.mark.parametrize("begun", [waiting_pin, listed_later])
async def test_list_before_the_pin_is_written_is_compared_with_the_first_view(
    shop: Shop, begun: Callable[[Guarded], Awaitable[str]]
) -> None:
    """A client is warned of what changed since it called a tool or was shown the tools, however soon that was."""
    async with guarded(shop, "warn") as front:
        session = await begun(front)
        shop.tools = [EVIL]
        assert (await front.list(session))[0]["description"].startswith(WARNING)


async def test_pin_that_may_be_the_reason_to_refuse_is_written_before_the_list_leaves() -> None:
    """A process that is killed forgets no tools that it will have to block."""
    store = PinsCounted()
    async with guarded(Shop(CLICK), "block", store=store) as front:
        await listed_later(front)
        assert store.pinned == 2


async def test_first_list_of_a_process_is_compared_with_the_pin_of_an_earlier_one(
    shop: Shop, store: MemoryStore
) -> None:
    """That session is not new, also where the tools of now are those that the server had first."""
    async with guarded(shop, "warn", store=store) as front:
        await front.list(await front.open())
        shop.tools = [EVIL]
        session = await front.open()
        await front.list(session)
    shop.tools = [CLICK]
    async with guarded(shop, "warn", store=store) as front:
        await listed_later(front)
        assert (await front.list(session))[0]["description"].startswith(WARNING)


async def test_operators_hear_of_drift_that_short_sessions_meet(shop: Shop) -> None:
    """Where other tools are offered than the server's first ones, no view is put off."""
    async with guarded(shop, "warn") as front:
        await calls_once(front)
        await front.idle()
        shop.tools = [EVIL, SHOOT]
        front.cache.changed()
        await calls_once(front)
        await front.idle()
        for _ in range(3):
            ends(front, await calls_once(front))
        await front.idle()
        found = await front.baselines.remembered()
        assert found is not None and found.sessions == 4


async def test_caller_over_http_is_pinned_at_once() -> None:
    """The pin is that of a principal, and outlives the session."""
    store = PinsCounted()
    async with guarded(Shop(CLICK), "warn", store=store, caller=Caller("ann")) as front:
        await calls_once(front)
        await front.idle()
        front.caller = Caller("ann", entrance="http")
        ends(front, await calls_once(front))
        await front.idle()
        assert store.pinned == 2
