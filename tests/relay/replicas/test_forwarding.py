"""Requests for sessions of another replica: they arrive as they are, once, and their failures stay what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from adapter.errors import (
    LimitReached,
    UpstreamBroken,
    UpstreamSilent,
    UpstreamUnanswered,
    UpstreamUnreachable,
)
from adapter.relay.replicas.forwarding import LATER, decode_head, encode_head
from adapter.rules.access.principals import Caller
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest, WholeReply, always, never
from adapter.wire.forwarding import MARK, PATH, mark, read_seal
from tests.relay.replicas.forwarders import KEY, Pair, Played, Wire

FIELDS = {"X-Tenant": "t", "Authorization": "Bearer x", "Mcp-Session-Id": "client's"}
CLAIMS = {"sub": "ada", "groups": ["dev", "ops"], "n": 1}
CALLER = Caller("ada:1", "http", FIELDS, frozenset({"authorization"}), frozenset({"mcp", "more"}), CLAIMS)
CALL = UpstreamRequest("POST", [("X-A", "1"), ("Mcp-Session-Id", "a:token")], b'{"id":1}', CALLER, "q=1")


TEXT = st.text(st.characters(exclude_categories=[]), max_size=20)
NAMES = TEXT.map(str.lower).filter(lambda name: name != "mcp-session-id")
CALLERS = st.builds(
    Caller,
    principal=TEXT,
    entrance=st.sampled_from(["mcp", "http"]),
    fields=st.dictionaries(NAMES, TEXT, max_size=3),
    withheld=st.frozensets(st.just("authorization"), max_size=1),
    scopes=st.frozensets(TEXT, max_size=3),
    claims=st.dictionaries(TEXT, st.none() | TEXT | st.integers() | st.lists(TEXT, max_size=2), max_size=3),
)
REQUESTS = st.builds(
    UpstreamRequest,
    method=TEXT,
    headers=st.lists(st.tuples(TEXT, TEXT), max_size=3),
    body=st.binary(max_size=9),
    query=TEXT,
    purpose=st.sampled_from(Purpose),
    repeatable=st.sampled_from([always, never]),
    caller=CALLERS,
)
PLAIN = encode_head("s", UpstreamRequest("POST", []), None, KEY)


@given(TEXT, REQUESTS, st.none() | st.floats(0, 1e9))
def test_any_head_comes_back(server: str, request: UpstreamRequest, timeout: float | None) -> None:
    """Header text may hold surrogates, as whatever a client sent."""
    data = encode_head(server, request, timeout, KEY)
    assert data.isascii()
    assert decode_head(data, request.body) == (server, request, timeout)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"caller":1}',
        PLAIN.replace(b'"headers":[]', b'"headers":[["a"]]'),
        PLAIN.replace(b'"headers":[]', b'"headers":7'),
        PLAIN.replace(b'"query"', b'"other"'),
        PLAIN.replace(b'"query"', b'"other":1,"query"'),
        PLAIN.replace(b'"scopes"', b'"other":1,"scopes"'),
    ],
)
def test_anything_else_is_no_head(data: bytes) -> None:
    """Another version may send other members."""
    with pytest.raises(ValueError):
        decode_head(data, b"")


async def test_a_request_arrives_as_it_is(found: Pair) -> None:
    """Method, fields in their order, query, body, caller, purpose and timeout are those of the first replica."""
    told: list[tuple[str, str]] = []
    found.forwarding.on_end = lambda server, result: told.append((server, result))
    request = replace(CALL, method="GET", repeatable=always, purpose=Purpose.STREAM)
    reply = await found.near.send(request, 7.5)
    assert (reply.status, reply.headers, reply.whole) == (200, [("Content-Type", "application/json")], b"{}")
    assert (await reply.read(1.0), await reply.read(1.0)) == (b"{}", b"")
    ((arrived, timeout),) = found.far.seen
    assert (arrived.method, arrived.headers, arrived.query) == ("GET", request.headers, "q=1")
    assert (arrived.body, arrived.purpose, timeout) == (request.body, Purpose.STREAM, 7.5)
    assert arrived.repeatable()
    assert (arrived.caller.principal, arrived.caller.entrance) == ("ada:1", "http")
    assert arrived.caller.scopes == CALLER.scopes and arrived.caller.claims == CLAIMS
    assert arrived.caller.told_fields() == CALLER.told_fields() == {"x-tenant": "t"}
    assert [url for url, _ in found.peers] == ["http://a:1" + PATH]
    assert told == [("raw", "ok")]


async def test_secrets_of_the_caller_do_not_travel(found: Pair) -> None:
    """The adapter's own token and the id of the client's session differ from others there, and say nothing."""
    for token in ("x", "x", "y"):
        caller = Caller("ada:1", "mcp", FIELDS | {"Authorization": f"Bearer {token}"}, CALLER.withheld)
        await found.near.send(replace(CALL, caller=caller), 1.0)
    first, second, third = (arrived.caller.lower_fields() for arrived, _ in found.far.seen)
    assert first == second
    assert first["authorization"] != third["authorization"]
    assert "Bearer" not in str((first, third))
    assert "client's" not in str((first, third))


@pytest.mark.parametrize("session", [None, "b:token", "token"])
async def test_what_lives_here_stays_here(session: str | None, found: Pair) -> None:
    """No session, one of this replica and one that names none are the upstream's own matter."""
    headers = [] if session is None else [("Mcp-Session-Id", session)]
    await found.near.send(replace(CALL, headers=headers), 1.0)
    assert isinstance(found.near.home, Played)
    assert len(found.near.home.seen) == 1
    assert found.peers == []


async def test_a_session_of_nobody_is_unknown(found: Pair) -> None:
    """Its owner has no row: the answer is the one at which a session is opened anew."""
    for owner in ("gone", "no/id", "x" * 80):
        reply = await found.near.send(replace(CALL, headers=[("Mcp-Session-Id", f"{owner}:t")]), 1.0)
        assert reply.status == 404
    assert found.peers == []


async def test_an_owner_that_leaves_gets_nothing_more(found: Pair) -> None:
    """As soon as its row says so."""
    await found.a.leave()
    await found.b.look()
    assert (await found.near.send(CALL, 1.0)).status == 404
    assert found.peers == []


@pytest.mark.parametrize(
    "error",
    [UpstreamSilent("for 3 s"), LimitReached("full", data={"limit": 1}, retry_after=2.0), UpstreamBroken()],
)
async def test_a_failure_of_the_other_upstream_is_raised_here(error: UpstreamSilent, found: Pair) -> None:
    """With its class, its sentence and its data."""

    async def fail(_: UpstreamRequest) -> UpstreamReply:
        raise error

    found.far.answer = fail
    with pytest.raises(type(error), match=str(error)) as raised:
        await found.near.send(CALL, 1.0)
    assert (raised.value.data, raised.value.retry_after) == (error.data, error.retry_after)


async def test_a_defect_there_is_no_secret_here(found: Pair) -> None:
    """It is logged where it is, and answered in general."""

    async def fail(_: UpstreamRequest) -> UpstreamReply:
        raise ZeroDivisionError("a secret")

    found.far.answer = fail
    with capture_logs() as logged, pytest.raises(Exception, match="failed unexpectedly"):
        await found.near.send(CALL, 1.0)
    assert [each["log_level"] for each in logged] == ["error"]


async def test_an_owner_that_cannot_be_reached_loses_the_session(found: Pair) -> None:
    """The request has not run, so the session may be opened anew; if the owner lives it is told, and ends its own."""

    async def refuse(_: UpstreamRequest) -> UpstreamReply:
        raise UpstreamUnreachable("it refused the connection")

    found.connect = lambda: Played(refuse)
    with capture_logs() as logged:
        assert (await found.near.send(CALL, 1.0)).status == 404
    assert logged[0]["event"] == "another replica cannot be reached"
    await _until(lambda: len(found.home.left) == 1)
    assert found.far.seen == []
    found.home.left.add("raw", "a:token")
    found.home.left._over(("raw", "a:token"))
    await _until(lambda: bool(found.far.seen))
    ((ending, _),) = found.far.seen
    assert (ending.method, ending.headers) == ("DELETE", [("Mcp-Session-Id", "a:token")])


@pytest.mark.parametrize(
    "announced", [b"", b"[]", b'["b","raw","x"]', b'["a","none","x"]', b'["a","raw",1]', b"7"]
)
async def test_other_words_end_nothing(announced: bytes, found: Pair) -> None:
    """Those of other replicas, of servers that are not known, and of other versions."""
    found.home.announced("replica sessions left", announced)
    found.home.announced("something else", announced)
    found.home.row_changed("t", "k")
    found.home.rows_unknown()
    assert len(found.home.left) == 0


async def test_a_call_that_may_have_run_is_not_repeated(found: Pair) -> None:
    """An owner that took it and said nothing: the client gets an error, and nobody opens the session for it."""

    async def vanish(_: UpstreamRequest) -> UpstreamReply:
        raise UpstreamUnanswered()

    peer = Played(vanish)
    found.connect = lambda: peer
    with pytest.raises(UpstreamUnanswered, match="replica"):
        await found.near.send(CALL, 1.0)
    assert len(peer.seen) == 1
    assert peer.seen[0][1] == 1.0 + LATER


@pytest.mark.parametrize("status", [200, 400, 500, 503])
async def test_an_answer_without_a_mark_is_nobodys(status: int, found: Pair) -> None:
    """Something else is at the address, and might have passed the request on: it is not repeated."""

    async def answer(_: UpstreamRequest) -> UpstreamReply:
        fields = [(MARK, mark(bytes(32), "n", "answer", status)), ("Content-Type", "application/json")]
        return WholeReply(status, fields, b'{"result":{}}')

    found.connect = lambda: Played(answer)
    with pytest.raises(UpstreamUnanswered, match="may have run"):
        await found.near.send(CALL, 1.0)


async def test_a_challenge_that_expired_is_asked_for_again(found: Pair) -> None:
    """A replica that was restarted under its id refuses what was sealed for the one before; nothing of it has run."""
    await found.near.send(CALL, 1.0)
    for _ in range(30):
        await found.a.renew()
    assert (await found.near.send(CALL, 1.0)).status == 200
    assert len(found.far.seen) == 2
    (_, wire), *_ = found.peers
    assert isinstance(wire, Wire)
    assert len({read_seal(text)[0].challenge for text in wire.sealed}) == 2


async def test_a_replica_that_always_refuses_is_told_of(found: Pair) -> None:
    """After two attempts its session is opened anew."""
    found.a.key = bytes(32)
    with capture_logs() as logged:
        assert (await found.near.send(CALL, 1.0)).status == 404
        assert (await found.near.send(CALL, 1.0)).status == 404
    refusals = [each["event"] for each in logged if "replica" in each]
    assert refusals == ["another replica refuses what is forwarded to it"]
    assert found.far.seen == []


async def test_connections_follow_the_address(found: Pair) -> None:
    """A replica that comes back elsewhere is found there; one that has gone keeps no connection."""
    await found.near.send(CALL, 1.0)
    await found.near.send(CALL, 1.0)
    assert len(found.peers) == 1
    await found.a.close()
    await found.a.join("http://a:2")
    await found.b.look()
    await found.near.send(CALL, 1.0)
    assert [url for url, _ in found.peers] == ["http://a:1" + PATH, "http://a:2" + PATH]
    await found.a.close()
    await found.b.look()
    await _until(lambda: all(peer.closed for _, peer in found.peers))
    assert "0 replicas" in repr(found.forwarding)


async def test_a_failure_that_is_none(found: Pair) -> None:
    """What a replica with the key sends is read no further than a failure may be long."""

    async def answer(request: UpstreamRequest) -> UpstreamReply:
        nonce = read_seal(request.headers[0][1])[0].nonce
        return WholeReply(200, [(MARK, mark(KEY, nonce, "failure", 200))], b"[")

    found.connect = lambda: Played(answer)
    with pytest.raises(UpstreamBroken):
        await found.near.send(CALL, 1.0)


async def _turn() -> None:
    await asyncio.sleep(0)


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await _turn()
