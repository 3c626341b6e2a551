"""Requests without a session id: at stateless servers, and in the session that is kept for their principal."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from adapter.errors import SessionMissing, SessionUnknown
from adapter.relay.sessions.session_map import SessionLimits
from adapter.rules.access.sessions import session_key
from adapter.wire.eras import Era
from tests.relay.relaying import INITIALIZE, Relaying
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream
from tests.waiting import until

LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
LISTED = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
RESULT = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'
ACCEPTED = ScriptedAnswer(202, headers=())
STATELESS = ScriptedAnswer(chunks=[RESULT])


def opened(name: str) -> ScriptedAnswer:
    return ScriptedAnswer(
        headers=(("Content-Type", "application/json"), ("Mcp-Session-Id", name)), chunks=[RESULT]
    )


def initialize(text: bytes = b"") -> Expect:
    return Expect("POST", body=lambda body: b'"initialize"' in body and text in body)


Step = tuple[Expect, ScriptedAnswer]

INITIALIZED = Expect("POST", body=lambda body: b"notifications/initialized" in body)


def listing(session: str | None) -> Step:
    """A list that is asked for in that session."""
    return Expect("POST", LIST, headers={"mcp-session-id": session}), ScriptedAnswer(chunks=[LISTED])


def opening(session: str, text: bytes = b"") -> list[Step]:
    """The adapter opens that session, by an initialize with ``text`` in it."""
    return [(initialize(text), opened(session)), (INITIALIZED, ACCEPTED)]


# --- servers that issue no ids --------------------------------------------------------------------------------


async def test_files_of_such_a_request_belong_to_its_principal() -> None:
    """The scope is the principal's, as a modern client's is."""
    upstream = ScriptedUpstream([(initialize(), STATELESS)])
    relaying = Relaying(upstream)
    await relaying.post_first(INITIALIZE)
    ask = relaying.ask(LIST, None, era=Era.LEGACY)
    session = await relaying.principal_sessions.find(ask)
    calling = relaying.relay.get_streams.call_gate
    assert calling.scope_of(session, "anonymous") == calling.scope_of(None, "anonymous")
    other = relaying.ask(LIST, None, era=Era.LEGACY, principal="bea")
    assert await relaying.principal_sessions.find(other) is not session


async def test_client_of_a_stateless_server_gets_an_id_all_the_same() -> None:
    """Files and pins need a session to belong to, so clients that keep ids are given one."""
    upstream = ScriptedUpstream([(initialize(), STATELESS), listing(None)])
    relaying = Relaying(upstream)
    answer = await relaying.relay.handle(relaying.ask(INITIALIZE, None, era=Era.LEGACY))
    session = dict(answer.headers)["Mcp-Session-Id"]
    assert await relaying.post(LIST, session) == LISTED


async def test_server_that_is_not_known_is_asked_once() -> None:
    """A restarted adapter finds out by a session of its own; ten requests at once open one."""
    stateless = ScriptedAnswer(chunks=[RESULT.replace(b'"id":0', b'"id":1')])
    steps = [(initialize(), stateless), (INITIALIZED, ACCEPTED)]
    upstream = ScriptedUpstream([*steps, *[listing(None)] * 10])
    relaying = Relaying(upstream)
    assert await asyncio.gather(*(relaying.post_first(LIST) for _ in range(10))) == [LISTED] * 10
    assert upstream.unplayed == []


async def test_request_without_id_is_refused_at_a_server_with_sessions() -> None:
    """The default: 400, and the session that was opened to find out is closed."""
    closed = Expect("DELETE", headers={"mcp-session-id": "probe"})
    probed = ScriptedAnswer(headers=opened("probe").headers, chunks=[RESULT.replace(b'"id":0', b'"id":1')])
    steps = [(initialize(), probed), (INITIALIZED, ACCEPTED), (closed, ScriptedAnswer())]
    upstream = ScriptedUpstream(steps)
    relaying = Relaying(upstream)
    for _ in range(2):
        with pytest.raises(SessionMissing):
            await relaying.post_first(LIST)
    assert upstream.unplayed == []


async def test_server_that_opens_no_session_is_not_asked_each_time() -> None:
    """A server that refuses the adapter's own credentials is asked again only after a while."""
    upstream = ScriptedUpstream([(initialize(), ScriptedAnswer(401)), (initialize(), ScriptedAnswer(401))])
    relaying = Relaying(upstream)
    for _ in range(3):
        with pytest.raises(SessionMissing):
            await relaying.post_first(LIST)
    assert len(upstream.requests) == 1
    relaying.clock.now += 60
    with pytest.raises(SessionMissing):
        await relaying.post_first(LIST)
    assert upstream.unplayed == []


async def test_batch_without_id_goes_by_its_header() -> None:
    """Without a session the version header tells whether batches exist; without that it is 2025-03-26."""
    batch = b"[" + LIST + b"]"
    sent = Expect("POST", batch)
    upstream = ScriptedUpstream(
        [(initialize(), STATELESS), (sent, ScriptedAnswer(chunks=[b"[" + LISTED + b"]"]))]
    )
    relaying = Relaying(upstream)
    await relaying.post_first(INITIALIZE)
    assert await relaying.post_first(batch) == b"[" + LISTED + b"]"
    later = relaying.ask(batch, None, era=Era.LEGACY, version="2025-11-25")
    with pytest.raises(Exception, match="2025-03-26"):
        await relaying.relay.handle(later)


# --- sessions kept for a principal ----------------------------------------------------------------------------


async def test_requests_without_id_go_on_in_one_session() -> None:
    """The first opens it with the principal's last initialize; ten at once open one."""
    named = orjson.dumps(orjson.loads(INITIALIZE) | {"params": {"clientInfo": "host"}})
    steps = [(initialize(), opened("first")), *opening("kept", b'"host"'), *[listing("kept")] * 10]
    upstream = ScriptedUpstream(steps)
    relaying = Relaying(upstream, serves_missing=True)
    await relaying.post_first(named)
    assert await asyncio.gather(*(relaying.post_first(LIST) for _ in range(10))) == [LISTED] * 10
    assert upstream.unplayed == []


async def test_principal_that_never_sent_initialize_is_served() -> None:
    """Without an initialize to repeat, the adapter sends one of a client that can do nothing but ask."""
    steps = [*opening("kept", b'"capabilities":{}'), listing("kept")]
    relaying = Relaying(ScriptedUpstream(steps), serves_missing=True)
    assert await relaying.post_first(LIST) == LISTED


async def test_kept_session_is_opened_again_when_the_server_forgot_it() -> None:
    """A 404 renews it as any other."""
    steps = [*opening("old"), (listing("old")[0], ScriptedAnswer(404)), *opening("new"), listing("new")]
    upstream = ScriptedUpstream(steps)
    assert await Relaying(upstream, serves_missing=True).post_first(LIST) == LISTED
    assert upstream.unplayed == []


async def test_kept_session_is_closed_when_idle_and_comes_back() -> None:
    """After the idle time its upstream session is closed; a later request opens another, tombstone or none."""
    steps = [
        *opening("one"),
        listing("one"),
        (Expect("DELETE", headers={"mcp-session-id": "one"}), ScriptedAnswer()),
    ]
    upstream = ScriptedUpstream(steps)
    limits = SessionLimits(idle_ttl=60, tombstone_ttl=60)
    relaying = Relaying(upstream, limits=limits, serves_missing=True)
    await relaying.post_first(LIST)
    for _ in range(3):
        relaying.clock.now += 100
        await relaying.cleanup.run_once()
    assert upstream.unplayed == [] and relaying.sessions.active == 0
    for step in (*opening("two"), listing("two")):
        upstream.then(*step)
    assert await relaying.post_first(LIST) == LISTED


async def test_initialize_while_the_kept_session_opens_loses_nothing() -> None:
    """Another client of the principal initializes just then: the request is served, and no upstream session is left."""
    go_on = asyncio.Event()
    slow = ScriptedAnswer(headers=opened("slow").headers, chunks=[RESULT], after=go_on)
    steps = [
        (initialize(b'"capabilities":{}'), slow),
        (INITIALIZED, ACCEPTED),
        (Expect("DELETE", headers={"mcp-session-id": "slow"}), ScriptedAnswer()),
        (initialize(), opened("other")),
        *opening("kept"),
        listing("kept"),
    ]
    upstream = ScriptedUpstream(steps)
    relaying = Relaying(upstream, serves_missing=True)
    first = asyncio.create_task(relaying.post_first(LIST))
    await until(lambda: upstream.requests)
    await relaying.post_first(INITIALIZE)
    go_on.set()
    assert await first == LISTED
    assert upstream.unplayed == []


async def test_nobody_can_end_or_name_the_kept_session() -> None:
    """A DELETE without an id is refused, and the key of its row is no id."""
    steps = [*opening("kept"), listing("kept")]
    relaying = Relaying(ScriptedUpstream(steps), serves_missing=True)
    await relaying.post_first(LIST)
    with pytest.raises(SessionMissing):
        await relaying.relay.handle(relaying.ask(b"", None, era=Era.LEGACY, method="DELETE"))
    (row,) = await relaying.store.scan("sessions")
    assert row.key != session_key(row.key)
    with pytest.raises(SessionUnknown):
        await relaying.post(LIST, row.key)


async def test_kept_session_that_was_revoked_waits_for_initialize() -> None:
    """After a drift its requests get 404 with the reason, until the principal initializes again."""
    steps = [*opening("kept"), listing("kept")]
    upstream = ScriptedUpstream(steps)
    relaying = Relaying(upstream, serves_missing=True)
    await relaying.post_first(LIST)
    (row,) = await relaying.store.scan("sessions")
    await relaying.sessions.revoke(row.key, "the tools changed")
    with pytest.raises(SessionUnknown, match="the tools changed"):
        await relaying.post_first(LIST)
    for step in ((initialize(), opened("other")), *opening("new"), listing("new")):
        upstream.then(*step)
    await relaying.post_first(INITIALIZE)
    assert await relaying.post_first(LIST) == LISTED
