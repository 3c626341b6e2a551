"""Scopes: whose files a call's are, on every replica, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from adapter.relay.files import scopes as scopes_module
from adapter.relay.files.scopes import TABLE, Scopes
from adapter.relay.sessions.session_map import Session
from adapter.rules.access.principals import Scope
from adapter.rules.access.sessions import SessionState, session_key
from adapter.state.sqlite import MemoryStore
from tests.relay.relaying import Clock, Relaying
from tests.scripted import ScriptedUpstream
from tests.state.shared import SharedMemory


async def opened(store: MemoryStore, *, per_principal: bool = False) -> Scopes:
    scopes = Scopes(store, per_principal=per_principal)
    await scopes.open()
    return scopes


def session(key: str, principal: str = "alice:0") -> Session:
    return Session(key, "one", principal, "up-1", "2025-11-25", 0, 0.0)


async def test_files_belong_to_the_session_or_to_who_has_none() -> None:
    """Two sessions of one principal share nothing; modern calls share the principal's."""
    scopes = await opened(MemoryStore())
    one, two = scopes.of(session("1"), "alice:0"), scopes.of(session("2"), "alice:0")
    alice, bob = scopes.of(None, "alice:0"), scopes.of(None, "bob:1")
    assert len({one.id, two.id, alice.id, bob.id}) == 4
    assert one == scopes.of_session_key("1")
    assert (one.session_key, alice.session_key) == ("1", None)


async def test_files_belong_to_the_principal_where_that_is_configured() -> None:
    """Every session of a principal, and its modern calls, see the same files."""
    scopes = await opened(MemoryStore(), per_principal=True)
    assert scopes.of(session("1"), "alice:0") == scopes.of(session("2"), "alice:0")
    assert scopes.of(session("1"), "alice:0") == scopes.of(None, "alice:0")
    assert scopes.of(session("3", "bob:1"), "bob:1") != scopes.of(None, "alice:0")


async def test_replicas_agree_on_ids() -> None:
    """The secret is made once, also by two that start at the same time."""
    store = MemoryStore()
    one, two = await asyncio.gather(opened(store), opened(store))
    assert one.of_session_key("1") == two.of_session_key("1")
    assert one.of_session_key("1") != (await opened(MemoryStore())).of_session_key("1")


async def test_remembered_scope_is_found_while_its_session_lives() -> None:
    """By another process too; what nobody remembered, or a hostile id, is not found."""
    one = Relaying(ScriptedUpstream())
    assert isinstance(one.store, MemoryStore)
    key = session_key(await one.open())
    here, there = await opened(one.store), await opened(one.store)
    scope = here.of_session_key(key)
    assert await there.find(scope.id) is None
    await here.remember(scope)
    assert await there.find(scope.id) == await here.find(scope.id) == scope
    for hostile in ("", "\udcff", "../" + scope.id):
        assert await here.find(hostile) is None
    await one.store.delete("sessions", key)
    assert await there.find(scope.id) is None
    assert await here.find(scope.id) is None


async def test_remembering_again_writes_nothing() -> None:
    """Every call of the helper tool remembers; one of them writes."""
    store = MemoryStore()
    scopes = await opened(store)
    scope = scopes.of(None, "alice:\udcff")
    await scopes.remember(scope)
    await scopes.remember(scope)
    row = await store.get(TABLE, scope.id)
    assert row is not None and row.version == 1
    assert await (await opened(store)).find(scope.id) == scope


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (SessionState.OPEN, True),
        (SessionState.IDLE, True),
        (SessionState.ENDED, False),
        (SessionState.REVOKED, False),
    ],
)
async def test_scope_lives_with_its_session(state: SessionState, found: bool) -> None:
    """A tombstone keeps its files for a client that comes back; an ended or revoked session has none."""
    one = Relaying(ScriptedUpstream())
    assert isinstance(one.store, MemoryStore)
    scopes = await opened(one.store)
    scope = scopes.of_session_key(session_key(await one.open(state=state)))
    await scopes.remember(scope)
    assert (await scopes.find(scope.id) == scope) is found
    assert await scopes.gone(scope) is not found


async def test_session_that_cannot_be_read_keeps_its_files() -> None:
    """Another version of the adapter may know it."""
    store = MemoryStore()
    scopes = await opened(store)
    await store.put("sessions", "1", b"of another version")
    assert not await scopes.gone(scopes.of_session_key("1"))


async def test_scope_that_was_not_remembered_here_ends_without_the_store() -> None:
    """What another process wrote is left to the cleanup."""
    store = MemoryStore()
    earlier, scopes = await opened(store), await opened(store)
    await earlier.remember(earlier.of_session_key("1"))
    await scopes.forget(scopes.of_session_key("1"))
    assert await store.count(TABLE) == 1


@pytest.mark.parametrize(
    "forget", [lambda scopes, scope: scopes.forget(scope), lambda scopes, _: scopes.tidy()]
)
async def test_scope_of_an_ended_session_is_forgotten(
    forget: Callable[[Scopes, Scope], Awaitable[None]],
) -> None:
    """When its end is told, or by the cleanup where that was missed; principals stay."""
    store = MemoryStore()
    scopes = await opened(store)
    scope, principal = scopes.of_session_key("1"), scopes.of(None, "alice:0")
    await scopes.remember(scope)
    await scopes.remember(principal)
    await forget(scopes, scope)
    assert [row.key for row in await store.scan(TABLE)] == [principal.id]
    await scopes.tidy()
    await scopes.tidy()
    assert await scopes.find(principal.id) == principal


async def test_a_scope_that_is_kept_outlives_its_session() -> None:
    """For as long as was said last, on every replica and whoever remembers it again; then it is gone."""
    store, clock = MemoryStore(), Clock()
    one, two = (Scopes(store, per_principal=False, clock=clock) for _ in range(2))
    await one.open()
    await two.open()
    scope = one.of_session_key("1")
    await one.keep(scope, clock.now + 20)
    await one.keep(scope, clock.now + 10)
    await two.remember(scope)
    clock.now += 19
    for scopes in (one, two):
        await scopes.tidy()
        assert await scopes.find(scope.id) == scope and not await scopes.gone(scope)
    clock.now += 1
    for scopes in (one, two):
        assert await scopes.find(scope.id) is None
    for _ in range(2):  # each looks at the page behind the last one
        await one.tidy()
    assert await store.count(TABLE) == 0


async def test_only_so_many_scopes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are found in the store."""
    monkeypatch.setattr(scopes_module, "MOST_REMEMBERED", 100)
    store = MemoryStore()
    scopes = await opened(store, per_principal=True)
    first = scopes.of(None, "user-0")
    for number in range(110):
        await scopes.remember(scopes.of(None, f"user-{number}"))
    assert repr(scopes) == "<Scopes: 100 remembered>"
    assert await scopes.find(first.id) == first


async def test_end_of_a_session_is_seen_by_every_replica() -> None:
    """A scope that was found before is gone as soon as its session is, without any word."""
    memory = SharedMemory()
    process = Relaying(ScriptedUpstream(), store=memory.replica())
    key = session_key(await process.open())
    store = memory.replica()
    store.deaf = True
    scopes = Scopes(store, per_principal=False)
    await scopes.open()
    scope = scopes.of_session_key(key)
    await scopes.remember(scope)
    assert await scopes.find(scope.id) == scope
    await process.sessions.revoke(key, "the tools changed")
    assert await scopes.find(scope.id) is None


async def test_scopes_that_the_store_has_lost_are_written_down_again() -> None:
    """A principal goes on after the loss, and a replica that never saw its scope finds it."""
    memory = SharedMemory()
    one, two = [Scopes(memory.replica(), per_principal=True) for _ in range(2)]
    await one.open()
    scope = one.of_principal("alice:0")
    await one.remember(scope)
    memory.rows = MemoryStore()
    await one.open()
    one.store_lost()
    await one.remember(one.of_principal("alice:0"))
    await two.open()
    assert await two.find(scope.id) == scope
