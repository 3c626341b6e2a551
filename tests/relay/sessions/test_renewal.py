"""Renewal of upstream sessions after a 404: by one process or two, refused, and without a session to renew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.errors import AdapterError, SessionUnknown, UpstreamBroken, UpstreamUnanswered
from adapter.relay.sessions.inner_client import INITIALIZED
from adapter.rules.tools.visibility import Disabled, Policies
from adapter.state.port import Store
from adapter.state.sqlite import SqliteStore
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.wire.eras import Era
from tests.relay.guarding import Shop, guarded, tool
from tests.relay.relaying import INITIALIZE, Relaying, whole
from tests.scripted import Expect, ScriptedAnswer, ScriptedReply, ScriptedUpstream
from tests.waiting import until

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"save"}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'
WITH_MORE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","cursor":"c"}%s}'
)
HIDDEN = Policies(disabled=Disabled.of(["hidden"]))
SHOP = (tool("hidden", "Does harm."), tool("seen"))


def opened(name: str) -> ScriptedAnswer:
    body = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'
    return ScriptedAnswer(
        headers=(("Content-Type", "application/json"), ("Mcp-Session-Id", name)), chunks=[body]
    )


@dataclass
class Forgetful:
    """An upstream that lost its sessions, and opens new ones only when as many ask as it waits for."""

    waits_for: int
    alive: set[str] = field(default_factory=set)
    opened: int = 0
    asking: int = 0
    _everybody: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        session = header(request.headers, "mcp-session-id")
        if b'"initialize"' in request.body:
            self.asking += 1
            if self.asking == self.waits_for:
                self._everybody.set()
            await asyncio.wait_for(self._everybody.wait(), 20)
            self.opened += 1
            self.alive.add(f"new-{self.opened}")
            return ScriptedReply(opened(f"new-{self.opened}"))
        if session not in self.alive:
            return ScriptedReply(ScriptedAnswer(404))
        if request.method == "DELETE":
            self.alive.discard(session or "")
        return ScriptedReply(ScriptedAnswer(chunks=[RESULT]))

    async def close(self) -> None:
        """Nothing to drop."""


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two processes' stores on one file."""
    both = SqliteStore(tmp_path / "state.sqlite3"), SqliteStore(tmp_path / "state.sqlite3")
    for store in both:
        await store.open()
    yield both
    for store in both:
        await store.close()


# --- shared ---------------------------------------------------------------------------------------------------


async def test_two_processes_renew_one_session_once(stores: tuple[Store, Store]) -> None:
    """Both see the 404 and initialize; one mapping is kept, and the other upstream session is closed."""
    upstream = Forgetful(waits_for=2)
    one, two = (Relaying(upstream, store=store) for store in stores)
    session = await one.open()
    answers = [*await asyncio.gather(one.post(CALL, session), two.post(CALL, session))]
    assert answers == [RESULT, RESULT]
    assert upstream.opened == 2 and len(upstream.alive) == 1
    (kept,) = upstream.alive
    for process in (one, two):
        found = await process.sessions.find(session, "one", "anonymous")
        assert (found.upstream_id, found.generation) == (kept, 1)


async def test_session_ended_by_another_process_is_not_renewed(stores: tuple[Store, Store]) -> None:
    """The upstream's 404 makes this process look into the store, where the session has ended."""
    upstream = Forgetful(waits_for=1, alive={"up-1"})
    one, two = (Relaying(upstream, store=store) for store in stores)
    session = await one.open()
    await two.sessions.find(session, "one", "anonymous")
    await whole(await one.relay.handle(one.ask(b"", session, method="DELETE")))
    with pytest.raises(SessionUnknown):
        await two.post(CALL, session)
    assert upstream.opened == 0 and upstream.alive == set()


async def test_call_that_meets_a_404_after_its_session_was_deleted_opens_nothing() -> None:
    """A renewal on behalf of an ended session would leave an upstream session that nobody closes."""
    answered = asyncio.Event()
    upstream = ScriptedUpstream(
        [
            (Expect("POST", CALL), ScriptedAnswer(404, after=answered)),
            (Expect("DELETE", headers={"mcp-session-id": "up-1"}), ScriptedAnswer()),
        ]
    )
    relaying = Relaying(upstream)
    session = await relaying.open()
    call = asyncio.create_task(relaying.post(CALL, session))
    await until(lambda: upstream.requests)
    await whole(await relaying.relay.handle(relaying.ask(b"", session, method="DELETE")))
    answered.set()
    with pytest.raises(SessionUnknown):
        await call
    assert [request.method for request in upstream.requests] == ["POST", "DELETE"]


# --- refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "failure", "sentence"),
    [
        (ScriptedAnswer(400, chunks=[b"{}"]), SessionUnknown, "refused to open this session again"),
        (ScriptedAnswer(503), UpstreamBroken, "HTTP status 503"),
        (UpstreamUnanswered(), UpstreamBroken, "the call was not sent"),
    ],
)
async def test_upstream_that_opens_no_session_again_gets_no_call(
    answer: ScriptedAnswer | Exception, failure: type[AdapterError], sentence: str
) -> None:
    """The client learns why its call was not sent a second time; its session is not lost for that."""
    upstream = ScriptedUpstream(
        [(Expect("POST", CALL), ScriptedAnswer(404)), (Expect("POST", INITIALIZE), answer)]
    )
    relaying = Relaying(upstream)
    session = await relaying.open()
    with pytest.raises(failure, match=sentence):
        await relaying.post(CALL, session)
    assert upstream.unplayed == []
    assert (await relaying.sessions.find(session, "one", "anonymous")).generation == 0


def losing_twice(last: ScriptedAnswer) -> ScriptedUpstream:
    """An upstream that forgets a session, and with this answer the one that was opened in its place."""
    return ScriptedUpstream(
        [
            (Expect("POST", CALL, {"mcp-session-id": "up-1"}), ScriptedAnswer(404)),
            (Expect("POST", INITIALIZE), opened("up-2")),
            (Expect("POST", INITIALIZED), ScriptedAnswer(202)),
            (Expect("POST", CALL, {"mcp-session-id": "up-2"}), last),
        ]
    )


async def test_one_request_renews_its_session_once() -> None:
    """An upstream that does not know its new session either has its 404 passed on."""
    upstream = losing_twice(ScriptedAnswer(404, chunks=[b"lost"]))
    relaying = Relaying(upstream)
    assert await relaying.post(CALL, await relaying.open()) == b"lost"
    assert upstream.unplayed == []


async def test_a_session_that_is_lost_twice_is_told_under_the_request_s_id() -> None:
    """A 404 without a body would leave the client without an answer to its request."""
    upstream = losing_twice(ScriptedAnswer(404, chunks=[b""]))
    relaying = Relaying(upstream)
    with pytest.raises(SessionUnknown):
        await relaying.post(CALL, await relaying.open())
    assert upstream.unplayed == []


async def test_a_notification_with_empty_params_is_not_kept() -> None:
    """The adapter's own says as much when the session is opened again, so the session's row stays as it is."""
    shop = Shop(*SHOP)
    said = b'{"jsonrpc":"2.0","method":"notifications/initialized","params":%b}'
    for params, version in ((b"{}", 1), (b'{"_meta":{"by":"client"}}', 2)):
        relaying, _ = await opened_without_a_guard(shop, INITIALIZE, said % params)
        (row,) = await relaying.store.scan("sessions")
        assert row.version == version


# --- sent again -----------------------------------------------------------------------------------------------


async def opened_without_a_guard(shop: Shop, initialize: bytes, initialized: bytes) -> tuple[Relaying, str]:
    """A session that a client opened while its server had no guard."""
    earlier = Relaying(shop)
    answer = await earlier.relay.handle(earlier.ask(initialize, None, era=Era.LEGACY))
    await answer.close()
    session = header(answer.headers, "mcp-session-id")
    assert session is not None
    await earlier.post(initialized, session)
    return earlier, session


async def test_an_initialize_of_a_time_without_a_guard_is_not_sent_again() -> None:
    """The client is told to open another session."""
    shop = Shop(*SHOP)
    earlier, session = await opened_without_a_guard(shop, WITH_MORE % b',"Method":"tools/call"', INITIALIZED)
    async with guarded(shop, "off", policies=HIDDEN, store=earlier.store, clock=earlier.clock) as front:
        shop.lost = {"up-2"}
        begun = len(shop.requests)
        with pytest.raises(SessionUnknown, match='"Method"'):
            await front.call(session, "seen")
        assert [request.method for request in shop.requests[begun:]] == ["POST"]
        assert b"initialize" not in shop.requests[-1].body


async def test_what_a_client_said_without_a_guard_is_said_in_other_words() -> None:
    """The session goes on; only the notification is the adapter's own."""
    shop = Shop(*SHOP)
    said = b'{"jsonrpc":"2.0","method":"notifications/initialized","Method":"tools/call","params":{}}'
    earlier, session = await opened_without_a_guard(shop, WITH_MORE % b"", said)
    async with guarded(shop, "off", policies=HIDDEN, store=earlier.store, clock=earlier.clock) as front:
        shop.lost = {"up-2"}
        begun = len(shop.requests)
        await front.call(session, "seen")
        bodies = [request.body for request in shop.requests[begun:]]
        assert INITIALIZED in bodies and said not in bodies
