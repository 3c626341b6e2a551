"""Sessions of callers over HTTP where several processes share the state: a caller meets any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from adapter.errors import StoreUnavailable
from adapter.relay.http_api.session_rows import SOON, CallerKey
from adapter.relay.http_api.sessions import BOUNDS, HttpSessions, SessionBounds, Who
from adapter.relay.sessions.session_map import TABLE as SESSIONS
from adapter.relay.stages import StageTable
from adapter.rules.access.principals import Caller
from adapter.rules.access.sessions import decode, encode
from adapter.state.sealed_rows import SealedRows
from adapter.upstream.port import UpstreamReply, UpstreamRequest, WholeReply, header
from tests.relay.http_api.test_sessions import ANN, DONE, JSON
from tests.relay.relaying import Clock, Relaying
from tests.state.shared import SharedMemory
from tests.waiting import until

Secret = Callable[[bytes | None], Awaitable[bytes]]

IDLE = 100.0
TABLE = "http:one"
OPENED = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "u", "version": "1"}}


class LegacyServer:
    """An Upstream with sessions, which answers calls once it may ``go``.

    ``calls`` are the session and the id of each call, ``ended`` the sessions that were closed.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.calls: list[tuple[str | None, int]] = []
        self.ended: list[str | None] = []
        self.called, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        session = header(request.headers, "mcp-session-id")
        if request.method == "DELETE":
            self.ended.append(session)
            return WholeReply(200, [], b"")
        if request.method == "GET":
            return WholeReply(405)
        if session in self.ended:
            return WholeReply(404)
        message: dict[str, Any] = orjson.loads(request.body)
        fields, result = [JSON], OPENED if message["method"] == "initialize" else DONE
        if message["method"] == "initialize":
            self.opened += 1
            fields.append(("Mcp-Session-Id", f"up-{self.opened}"))
        elif message["method"] == "tools/call":
            self.calls.append((session, message["id"]))
            self.called.set()
            await self.go.wait()
        else:
            return WholeReply(202, [], b"")
        return WholeReply(
            200, fields, orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        )

    async def close(self) -> None:
        """See Upstream."""


class Site:
    """One server, and processes in front of it that share rows."""

    def __init__(self) -> None:
        self.server = LegacyServer()
        self.memory = SharedMemory()
        self.clock = Clock()

    def process(self, most: int = BOUNDS.most, secret: Secret | None = None) -> Process:
        return Process(self, SessionBounds(IDLE, most), secret or _secret)

    def row_of(self, key: CallerKey) -> Any:
        return self.memory.rows.get(TABLE, key.row)


class Process:
    """One process of the adapter."""

    def __init__(self, site: Site, bounds: SessionBounds, secret: Secret) -> None:
        self.store = site.memory.replica()
        self.relaying = Relaying(site.server, StageTable(), self.store, site.clock)
        self.sessions = HttpSessions(
            self.relaying.relay,
            self.relaying.sessions,
            self.relaying.server,
            self.relaying.background,
            rows=SealedRows(self.store, secret),
            bounds=bounds,
        )

    async def call(self, who: Who = ANN) -> None:
        assert await self.sessions.call(who, "save", {}) == DONE

    async def tidy(self) -> None:
        """What a process does at regular times."""
        await self.sessions.tidy()
        await self.relaying.last_seen.write()
        await self.relaying.cleanup.run_once()

    async def sweep(self, act: Callable[[], Awaitable[None]], before: str) -> None:
        """Tidy; ``act`` happens when it is about to do that, ``get`` or ``delete``, with the session that is idle."""

        async def at(table: str, key: str) -> None:
            if table == SESSIONS and key and self.store.calls[before] > seen:
                self.store.before = None
                await act()

        seen = self.store.calls[before]
        self.store.before = at
        await self.tidy()
        assert self.store.before is None

    async def rest(self) -> None:
        """Wait until nothing is done in the background."""
        await until(lambda: repr(self.relaying.background) == "<BackgroundTasks: 0 running>")


async def _secret(_: bytes | None) -> bytes:
    return b"s" * 32


ANNS = CallerKey(ANN.principal, ANN.tab, ANN.principal, ANN.answers)


async def test_processes_go_on_in_one_session() -> None:
    """The second opens none, knows whose files are whose, and takes no id that the first has taken."""
    site = Site()
    first, second = site.process(), site.process()
    assert await second.sessions.key_of(ANN) is None
    await first.call()
    assert await second.sessions.key_of(ANN) == await first.sessions.key_of(ANN) is not None
    for process in (second, first, second):
        await process.call()
    assert site.server.opened == 1 and {session for session, _ in site.server.calls} == {"up-1"}
    assert len({number for _, number in site.server.calls}) == 4


async def test_callers_and_tabs_stay_apart() -> None:
    """A row is found by who asks, in which tab, and whether that one can be asked."""
    site = Site()
    first, second = site.process(), site.process()
    ann, bob = Caller("ann"), Caller("bob")
    callers = [Who(ann, "1"), Who(ann, "2"), Who(ann), Who(bob, "1"), Who(ann, "1", answers=True)]
    for who in callers:
        await first.call(who)
        await second.call(who)
    assert site.server.opened == len(callers)
    assert len({await second.sessions.key_of(who) for who in callers}) == len(callers)


async def test_of_two_that_open_at_once_one_session_stays() -> None:
    """The other is ended, and both processes go on in the same."""
    site = Site()
    processes = site.process(), site.process()
    await asyncio.gather(*(process.call() for process in processes))
    for process in processes:
        await process.rest()
        await process.call()
    assert site.server.opened == 2 and len(site.server.ended) == 1
    assert len({session for session, _ in site.server.calls}) == 1
    assert site.server.calls[0][0] not in site.server.ended


async def test_a_session_in_use_elsewhere_is_not_idle() -> None:
    """The process that no longer uses it forgets it; the other goes on, however long."""
    site = Site()
    first, second = site.process(), site.process()
    await first.call()
    for _ in range(8):
        site.clock.now += IDLE / 2
        await second.call()
        await first.tidy()
        await second.tidy()
    assert repr(first.sessions) == "<HttpSessions of 'one': 0>"
    assert site.server.ended == [] and site.server.opened == 1


async def test_a_call_that_runs_keeps_its_session() -> None:
    """Each cleanup tells the others that it is still in use."""
    site = Site()
    first, second = site.process(), site.process()
    site.server.go.clear()
    running = asyncio.create_task(first.call())
    await site.server.called.wait()
    for _ in range(4):
        site.clock.now += IDLE
        await first.tidy()
        await second.tidy()
    site.server.go.set()
    await running
    assert site.server.ended == []


async def test_an_idle_session_ends_once() -> None:
    """By whichever process notices, also one that never used it; the next call opens another."""
    site = Site()
    first, second = site.process(), site.process()
    await first.call()
    await first.sessions.close(within=5)
    assert site.server.ended == []
    site.clock.now += IDLE
    third = site.process()
    for process in (second, third):
        await process.tidy()
    assert site.server.ended == ["up-1"] and await site.memory.rows.count(SESSIONS) == 0
    site.clock.now += IDLE
    await second.tidy()
    assert await site.row_of(ANNS) is None
    await second.call()
    assert site.server.calls[-1][0] == "up-2"


async def test_a_session_that_was_revoked_is_opened_anew_for_all() -> None:
    """The process that notices opens it, and the others follow."""
    site = Site()
    first, second = site.process(), site.process()
    await first.call()
    await second.call()
    key = await first.sessions.key_of(ANN)
    assert key is not None
    await first.relaying.sessions.revoke(key, "the tools changed")
    second.store.unsure()  # the word of it may come a moment later
    await second.call()
    await first.call()
    assert [session for session, _ in site.server.calls] == ["up-1", "up-1", "up-2", "up-2"]
    assert site.server.opened == 2


async def test_a_session_that_makes_room_ends() -> None:
    """At once where no other process knows it, so that what callers may open stays bounded."""
    site = Site()
    first, second = site.process(most=1), site.process()
    await first.call()
    await first.call(Who(Caller("bob")))
    await first.rest()
    assert site.server.ended == ["up-1"]
    await second.call()
    assert site.server.calls[-1][0] == "up-3"


async def test_a_session_that_makes_room_goes_on_elsewhere() -> None:
    """The process whose call runs in it says so before it is due."""
    site = Site()
    first, second = site.process(most=1), site.process()
    await first.call()
    site.server.go.clear()
    site.server.called.clear()
    running = [asyncio.create_task(second.call())]
    await site.server.called.wait()
    site.server.called.clear()
    running.append(asyncio.create_task(first.call(Who(Caller("bob")))))
    await site.server.called.wait()
    for _ in range(3):
        site.clock.now += IDLE * SOON
        await second.tidy()
        await first.tidy()
    site.server.go.set()
    await asyncio.gather(*running)
    assert site.server.ended == []


async def test_who_was_second_to_open_keeps_the_session_of_the_first() -> None:
    """Also where the first one makes room: it knows that it is not alone."""
    site = Site()
    processes = site.process(most=1), site.process(most=1)
    await asyncio.gather(*(process.call() for process in processes))
    for process in processes:
        await process.rest()
    [surplus] = site.server.ended
    for process in processes:
        await process.call(Who(Caller("bob")))
        await process.rest()
    assert site.server.ended == [surplus]


async def test_a_session_that_made_room_ends_soon() -> None:
    """Where nobody uses it elsewhere any more, before others that are idle."""
    site = Site()
    first, second = site.process(most=1), site.process()
    await first.call()
    await second.call()
    await first.call(Who(Caller("bob")))
    await first.rest()
    site.clock.now += IDLE * SOON
    await first.tidy()
    assert site.server.ended == ["up-1"]


@pytest.mark.parametrize("runs", [False, True], ids=["a call that has ended", "a call that runs"])
async def test_a_use_shortly_before_its_time_is_over_counts_elsewhere(runs: bool) -> None:
    """Also before its process has written when it was."""
    site = Site()
    first, second = site.process(), site.process()
    await first.call()
    await first.tidy()
    site.clock.now += IDLE * 0.95
    site.server.called.clear()
    if runs:
        site.server.go.clear()
    calling = asyncio.create_task(first.call())
    await site.server.called.wait()
    if not runs:
        await calling
    site.clock.now += IDLE * 0.06
    await second.tidy()
    site.server.go.set()
    await calling
    assert site.server.ended == []


@pytest.mark.parametrize(("call", "ended"), [("put", []), ("delete", ["up-1"])], ids=["before", "after"])
async def test_a_use_that_begins_while_its_session_makes_room(call: str, ended: list[str]) -> None:
    """Of the end and the use one is first: either the session goes on, or the user opens another."""
    site = Site()
    first, second = site.process(most=1), site.process()
    await first.call()
    key = await first.sessions.key_of(ANN)
    calls = first.store.calls[call]

    async def use(table: str, row: str) -> None:
        if (table, row) == (SESSIONS, key) and first.store.calls[call] > calls:
            first.store.before = None
            await second.call()

    first.store.before = use
    await first.call(Who(Caller("bob")))
    await first.rest()
    assert first.store.before is None and site.server.ended == ended
    await second.call()
    assert site.server.calls[-1][0] not in ended and len({each for each, _ in site.server.calls}) == 2 + len(
        ended
    )


async def test_a_session_that_goes_on_elsewhere_idles_as_long_as_others() -> None:
    """Whoever goes on in a session that made room in another process puts its end off again."""
    site = Site()
    first, second = site.process(most=1), site.process()
    await first.call()
    await second.call()
    await first.call(Who(Caller("bob")))
    await first.rest()
    await second.call()
    await second.rest()
    site.clock.now += IDLE / 2
    await second.tidy()
    assert site.server.ended == []


async def test_a_session_that_an_earlier_build_opened_ends() -> None:
    """It has no limit of its own; when its row is overdue it is given one."""
    site = Site()
    first, second = site.process(), site.process()
    await first.call()
    key = await first.sessions.key_of(ANN)
    assert key is not None
    row = await first.store.get(SESSIONS, key)
    assert row is not None
    record = decode(row.value)
    earlier = replace(record, times=record.times._replace(idle=None))
    await first.store.put(SESSIONS, key, encode(earlier), expected=row.version, due=None)
    for _ in range(4):
        site.clock.now += IDLE
        await second.tidy()
    assert site.server.ended == ["up-1"]
    assert await site.memory.rows.count(SESSIONS) == await site.memory.rows.count(TABLE) == 0


@pytest.mark.parametrize("user", [0, 1], ids=["where it was used", "elsewhere"])
async def test_a_use_that_begins_while_it_is_ended_for_idleness(user: int) -> None:
    """Who was about to end the session leaves it, for it has found it overdue before."""
    site = Site()
    processes = site.process(), site.process()
    await processes[0].call()
    site.clock.now += IDLE
    await site.process().sweep(processes[user].call, "get")
    assert site.server.ended == []
    await processes[1].call()
    assert {session for session, _ in site.server.calls} == {"up-1"}


async def test_a_use_that_begins_when_it_has_ended_upstream() -> None:
    """It goes on in the same session of the adapter, so that its files are still there."""
    site = Site()
    first, second, third = site.process(), site.process(), site.process()
    await first.call()
    key = await first.sessions.key_of(ANN)
    site.clock.now += IDLE
    await third.sweep(second.call, "delete")
    assert site.server.ended == ["up-1"]
    await first.call()
    assert [session for session, _ in site.server.calls] == ["up-1", "up-2", "up-2"]
    assert await first.sessions.key_of(ANN) == await second.sessions.key_of(ANN) == key


async def test_a_session_whose_row_another_process_replaced_ends() -> None:
    """As under another key, or after the store was away: nobody can find it any more."""
    site = Site()
    first = site.process()
    await first.call()
    row = await site.row_of(ANNS)
    await site.memory.rows.put(TABLE, ANNS.row, b"another key", due=row.due)
    second = site.process()
    await second.call()
    site.clock.now += IDLE / 2
    await second.call()
    site.clock.now += IDLE / 2
    await second.tidy()
    await first.tidy()
    assert site.server.ended == ["up-1"]
    await second.call()
    assert site.server.calls[-1][0] == "up-2"


async def test_without_the_store_no_session_is_opened() -> None:
    """The caller hears that the store is away, and the next call finds the session again."""
    site = Site()
    first, second = site.process(), site.process()
    await first.call()
    second.store.down = True
    with pytest.raises(StoreUnavailable):
        await second.call()
    second.store.down = False
    await second.call()
    assert site.server.opened == 1


async def test_rows_tell_a_reader_nothing() -> None:
    """The store has no session id as text, and one under another key is passed over and replaced."""
    site = Site()
    process = site.process()
    await process.call()
    row = await site.row_of(ANNS)
    key = await process.sessions.key_of(ANN)
    sealed = await SealedRows(process.store, _secret).opened(TABLE, row)
    assert sealed is not None and orjson.loads(sealed)["id"].encode() not in row.value
    assert key is not None and key.encode() not in row.value and b"ann" not in row.value

    async def another(_: bytes | None) -> bytes:
        return b"o" * 32

    stranger = site.process(secret=another)
    assert await stranger.sessions.key_of(ANN) is None
    await stranger.call()
    assert await site.process(secret=another).sessions.key_of(ANN) == await stranger.sessions.key_of(ANN)
    assert await stranger.sessions.key_of(ANN) not in (None, key)
