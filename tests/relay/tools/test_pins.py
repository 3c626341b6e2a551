"""Pins: what a scope saw first is remembered by digest, and a catalogue is kept once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from adapter.errors import StoreUnavailable
from adapter.log import get_logger
from adapter.relay.tools.baselines import Baselines
from adapter.relay.tools.catalogue_cache import LOOKED_UP, CatalogueCache
from adapter.relay.tools.pins import CATALOGUES, DRIFTS, PINS, Pins
from adapter.rules.access.principals import Scope, principal_scope
from adapter.rules.tools.catalogue import Catalogue, PinRule, catalogue_of
from adapter.rules.tools.definitions import read_tool
from adapter.state.port import Row, Store
from adapter.state.sqlite import MemoryStore
from tests.relay.relaying import Clock

SCOPE = Scope("scope", "")


def catalogue(*names: str) -> Catalogue:
    tools = [read_tool(b'{"name":"%s","description":"does"}' % name.encode()) for name in names]
    return catalogue_of([tool for tool in tools if tool is not None])


def process(store: Store, clock: Clock, server: str = "one") -> Baselines:
    """What one adapter process knows of a server."""
    cache, log = CatalogueCache(0, clock), get_logger("test")
    return Baselines(server, PinRule(), Pins(store, clock), cache, partial(principal_scope, b""), clock, log)


async def accept(baselines: Baselines, offered: Catalogue) -> None:
    """An operator is shown what the server offers, and accepts it."""
    await baselines.note_seen(offered)
    await baselines.accept(offered.digest, "eva")


async def test_first_catalogue_is_the_pin() -> None:
    """What the scope is offered later does not change it, and another process knows it too."""
    store, clock = MemoryStore(), Clock()
    first, later = catalogue("click"), catalogue("click", "shoot")
    assert (await process(store, clock).pin(SCOPE, first)).digest == first.digest
    assert (await process(store, clock).pin(SCOPE, later)).digest == first.digest
    found = await process(store, clock).pin_of(SCOPE.id)
    assert found is not None and found.digest == first.digest
    assert await Pins(store, clock).catalogue(first.digest) == first


async def test_ten_thousand_scopes_keep_one_catalogue(store: MemoryStore) -> None:
    """A pin is a digest; the definitions are written down once."""
    baselines, seen = process(store, Clock()), catalogue("click")
    for number in range(10_000):
        await baselines.pin(Scope(f"{number:032x}", ""), seen)
    assert await store.count(PINS) == 10_000 and await store.count(CATALOGUES) == 1
    assert await Pins(store, Clock()).count("one") == {seen.digest: 10_000}


async def test_accepted_catalogue_is_everybodys_baseline() -> None:
    """It takes the place of older pins, and scopes that come later start from it."""
    store, clock = MemoryStore(), Clock()
    running, operator = process(store, clock), process(store, clock)
    old, new = catalogue("click"), catalogue("click", "shoot")
    await running.pin(Scope("before", ""), old)
    clock.now += 5
    await accept(operator, new)
    clock.now += LOOKED_UP + 1
    for scope in ("before", "after"):
        pin = await running.pin_of(scope)
        assert pin is not None and pin.digest == new.digest
    assert await process(store, clock, "two").pin_of("before") is None


class ForgetfulStore(MemoryStore):
    """Fails in the middle of an acceptance: the pin is written down, the drift that was met stays."""

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """See Store."""
        if table == DRIFTS:
            raise StoreUnavailable()
        return await super().delete(table, key, expected=expected)


async def test_acceptance_that_failed_half_way_counts_as_far_as_it_came() -> None:
    """The process that wrote the pin starts from it at once, as every other one does."""
    baselines = process(ForgetfulStore(), Clock())
    await baselines.pin(SCOPE, catalogue("click"))
    new = catalogue("click", "shoot")
    with pytest.raises(StoreUnavailable):
        await accept(baselines, new)
    pin = await baselines.pin_of(SCOPE.id)
    assert pin is not None and pin.digest == new.digest


async def test_ended_scope_leaves_no_pin(store: MemoryStore) -> None:
    """Its session is over; the catalogue stays for those who share it."""
    baselines = process(store, Clock())
    await baselines.pin(SCOPE, catalogue("click"))
    await baselines.forget(SCOPE.id)
    assert await baselines.pin_of(SCOPE.id) is None and await store.count(PINS) == 0


async def test_last_seen_catalogue_is_known_while_the_server_is_away(store: MemoryStore) -> None:
    """An operator can look at drift without the upstream."""
    seen = catalogue("click")
    await Pins(store, Clock()).keep_seen("one", seen)
    pin = await Pins(store, Clock()).last_seen("one")
    assert pin is not None and pin.digest == seen.digest
    assert await Pins(store, Clock()).last_seen("two") is None


async def test_catalogue_of_another_version_is_unknown(store: MemoryStore) -> None:
    """A row that cannot be read harms nobody."""
    await store.put(CATALOGUES, "digest", b"\x00")
    assert await Pins(store, Clock()).catalogue("digest") is None


class CountingStore(MemoryStore):
    """A store that counts what is asked of it."""

    asked = 0

    async def get(self, table: str, key: str) -> Row | None:
        self.asked += 1
        return await super().get(table, key)

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        self.asked += 1
        return await super().delete(table, key, expected=expected)


async def test_scope_that_was_never_pinned_here_ends_without_the_store() -> None:
    """Sessions come and go by the thousand, and most that another process pinned are its to forget."""
    store, clock = CountingStore(), Clock()
    await process(store, clock).pin(SCOPE, catalogue("click"))
    store.asked = 0
    await process(store, clock).forget(SCOPE.id)
    assert store.asked == 0 and await store.count(PINS) == 1


async def test_pins_of_scopes_that_are_gone_are_tidied_away() -> None:
    """Whoever wrote them; those of scopes that live stay, and those that do not say whose they are."""
    store, clock = MemoryStore(), Clock()
    pins, seen = Pins(store, clock), catalogue("click")
    for number in range(600):
        await process(store, clock).pin(Scope(f"{number:032x}", "session:gone"), seen)
    for scope, owner in (("a", "session:lives"), ("b", "principal:alice"), ("c", "")):
        await process(store, clock, "two").pin(Scope(scope, owner), seen)

    async def gone(scope: Scope) -> bool:
        return scope.session_key == "gone"

    assert len(await pins.tidy(gone)) == 500
    assert await store.count(PINS) == 103
    await pins.tidy(gone)
    await pins.tidy(gone)
    assert [row.key for row in await store.scan(PINS)] == ["two/a", "two/b", "two/c"]


class SharedStore(MemoryStore):
    """A store that other processes write too."""

    shared = True


async def test_word_of_an_operator_holds_in_the_moment_it_is_said() -> None:
    """A scope that begins before this process has heard of it starts from it, and has no pin of its own."""
    store, clock = SharedStore(), Clock()
    running, operator = process(store, clock), process(store, clock)
    old, new = catalogue("click"), catalogue("click", "shoot")
    assert await running.pin_of(SCOPE.id) is None
    await accept(operator, new)
    assert (await running.pin(SCOPE, old)).digest == new.digest
    assert await store.count(PINS) == 0


class HoldingStore(MemoryStore):
    """A store whose pins are written when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.go_on = asyncio.Event(), asyncio.Event()

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        if table == PINS:
            self.writing.set()
            await self.go_on.wait()
        return await super().put(table, key, value, expected=expected, due=due)


async def test_scope_that_ends_while_it_is_pinned_leaves_no_pin() -> None:
    """The pin is taken away by who wrote it."""
    store = HoldingStore()
    baselines = process(store, Clock())
    pinning = asyncio.create_task(baselines.pin(SCOPE, catalogue("click")))
    await store.writing.wait()
    await baselines.forget(SCOPE.id)
    store.go_on.set()
    await pinning
    assert await store.count(PINS) == 0
