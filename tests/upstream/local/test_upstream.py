"""A server that knows messages only, behind the port of any upstream; here a bridge with one child for each session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from adapter.errors import UpstreamBroken
from adapter.upstream.local.events import UNREAD_AT_MOST
from adapter.upstream.local.messages import LocalAnswer, refusal
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.wire.envelope import Envelope
from adapter.wire.eras import Era

PATIENCE = 5.0
NUMBER = 7


class Child:
    """The far end of a bridge: ``lines`` are the bytes that it was sent."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.replies: dict[Any, PendingReply] = {}
        self.session: LocalSession | None = None

    def send(self, body: bytes, reply: PendingReply | None = None) -> None:
        if reply is not None:
            self.replies[orjson.loads(body)["id"]] = reply
        self.lines.put_nowait(body)

    async def line(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return orjson.loads(await self.lines.get())

    def answers(self, number: Any, body: bytes) -> None:
        """The child writes the response to a request."""
        self.replies.pop(number).answer(LocalAnswer(body))

    def dies(self) -> None:
        """What is under way is answered under its id, and the session is lost."""
        for number, reply in self.replies.items():
            reply.answer(refusal(b"%d" % number, -32000, "The server ended: exit code 3.", None, Era.LEGACY))
        assert self.session is not None
        self.session.end()


class Bridge:
    """A LocalServer that starts a child for each ``initialize`` and passes messages on as they are.

    ``ready`` is an answer that is given at once. ``streams`` tells of each request whether its answer may be a stream.
    """

    reads_params = False

    def __init__(self) -> None:
        self.sessions = LocalSessions(ended=self._stop)
        self.started: list[Child] = []
        self.stopped: list[str] = []
        self.ready: bytes | None = None
        self.streams: list[bool] = []
        self._children: dict[str, Child] = {}

    def answer(self, request: LocalRequest) -> PendingReply:
        self.streams.append(request.head.streams)
        child = self._children[request.session.id] if request.session else Child()
        reply = PendingReply(lambda: child.send(b'"given up"'))
        child.send(request.envelope.body, reply)
        if request.session is None:
            self.started.append(child)
            session = child.session = self.sessions.open("2025-11-25", {})
            self._children[session.id] = child
            reply.answer(LocalAnswer(b'{"jsonrpc":"2.0","id":1,"result":{}}', session_id=session.id))
        elif self.ready is not None:
            reply.answer(LocalAnswer(self.ready))
        return reply

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        child = self._children[session.id]
        child.send(envelope.body)
        if envelope.method == "notifications/cancelled":
            for reply in child.replies.values():
                if reply.withdrawn:
                    reply.end()

    async def close(self) -> None:
        self.stopped.append("all")

    def _stop(self, session: LocalSession) -> None:
        self.stopped.append(session.id)


@pytest.fixture
def upstream() -> LocalUpstream[Bridge]:
    return LocalUpstream(Bridge())


async def post(upstream: LocalUpstream[Bridge], body: bytes, session: str | None = None) -> UpstreamReply:
    fields = [("Accept", "application/json, text/event-stream")]
    if session is not None:
        fields.append(("Mcp-Session-Id", session))
    return await upstream.send(UpstreamRequest("POST", fields, body), PATIENCE)


async def get(
    upstream: LocalUpstream[Bridge], session: str, last_event_id: str | None = None
) -> UpstreamReply:
    fields = [("Mcp-Session-Id", session)]
    if last_event_id is not None:
        fields.append(("Last-Event-ID", last_event_id))
    return await upstream.send(UpstreamRequest("GET", fields), PATIENCE)


async def opened(upstream: LocalUpstream[Bridge]) -> tuple[str, Child]:
    """A new session with its child, which has read the ``initialize``."""
    reply = await post(upstream, b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
    session = header(reply.headers, "mcp-session-id")
    assert reply.status == 200 and session is not None
    child = upstream.server.started[-1]
    assert (await child.line())["method"] == "initialize"
    return session, child


def call(number: int = NUMBER) -> bytes:
    return b'{"jsonrpc":"2.0", "id":%d, "method":"tools/call", "params":{"name":"x","n":1e2}}' % number


def sent(method: str, **params: Any) -> bytes:
    message: Mapping[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return orjson.dumps(message)


async def test_each_session_has_a_child_of_its_own(upstream: LocalUpstream[Bridge]) -> None:
    """A message arrives as it was spelled, at the child of its session only, and so does the answer."""
    (mine, child), (_, other) = await opened(upstream), await opened(upstream)
    waits = asyncio.create_task(post(upstream, call(), mine))
    async with asyncio.timeout(PATIENCE):
        assert await child.lines.get() == call()
    answer = b'{"id":7,  "result":{"pi":3.10}, "jsonrpc":"2.0"}'
    child.answers(NUMBER, answer)
    reply = await waits
    assert (reply.whole, header(reply.headers, "content-type")) == (answer, "application/json")
    assert other.lines.empty()


async def test_a_server_may_ask_before_it_answers(upstream: LocalUpstream[Bridge]) -> None:
    """A request of the child opens a stream; the response reaches the child, and the answer ends the stream."""
    session, child = await opened(upstream)
    waits = asyncio.create_task(post(upstream, call(), session))
    await child.line()
    await child.replies[NUMBER].send(b'{"jsonrpc":"2.0","id":"q","method":"roots/list"}')
    reply = await waits
    assert await reply.read(PATIENCE) == b'data: {"jsonrpc":"2.0","id":"q","method":"roots/list"}\n\n'
    response = b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}'
    assert (await post(upstream, response, session)).status == 202
    assert (await child.line())["result"] == {"roots": []}
    child.answers(NUMBER, b"{}")
    assert [await reply.read(PATIENCE), await reply.read(PATIENCE)] == [b"data: {}\n\n", b""]


async def test_a_request_that_nobody_listens_to_opens_no_stream(upstream: LocalUpstream[Bridge]) -> None:
    """Messages would be lost on the stream of a request of the adapter's own, so its server is told to send none."""
    session, _ = await opened(upstream)
    fields = [("Accept", "application/json, text/event-stream"), ("Mcp-Session-Id", session)]
    for listens in (True, False):
        upstream.server.ready = b"{}"
        request = UpstreamRequest("POST", fields, call(), listens=listens)
        assert (await upstream.send(request, PATIENCE)).whole == b"{}"
        assert upstream.server.streams.pop() is listens


async def test_a_cancellation_reaches_the_server(upstream: LocalUpstream[Bridge]) -> None:
    """The child reads the notification, and the request that was cancelled is answered with nothing."""
    session, child = await opened(upstream)
    waits = asyncio.create_task(post(upstream, call(), session))
    await child.line()
    cancelled = sent("notifications/cancelled", requestId=NUMBER)
    assert (await post(upstream, cancelled, session)).status == 202
    assert [await child.line(), await child.line()] == ["given up", orjson.loads(cancelled)]
    assert ((await waits).status, (await waits).whole) == (202, b"")


async def test_a_server_that_dies_costs_its_session_alone(upstream: LocalUpstream[Bridge]) -> None:
    """What was under way is answered under its id; after that the session is unknown, and others go on."""
    (lost, child), (session, other) = await opened(upstream), await opened(upstream)
    listening = await get(upstream, lost)
    waits = asyncio.create_task(post(upstream, call(), lost))
    await child.line()
    child.dies()
    body = (await waits).whole
    assert body is not None and orjson.loads(body)["error"]["message"] == "The server ended: exit code 3."
    assert await listening.read(PATIENCE) == b""
    assert (await post(upstream, call(), lost)).status == 404
    assert upstream.server.stopped == [lost]
    waits = asyncio.create_task(post(upstream, call(), session))
    await other.line()
    other.answers(NUMBER, b"{}")
    assert (await waits).status == 200


async def test_a_reply_may_be_there_at_once(upstream: LocalUpstream[Bridge]) -> None:
    """A request that was answered before anybody waited for it is not kept: its session is idle again."""
    session, child = await opened(upstream)
    upstream.server.ready = b'{"jsonrpc":"2.0","id":7,"result":{}}'
    assert (await post(upstream, call(), session)).whole == upstream.server.ready
    assert child.session is not None and child.session.idle


async def test_a_reply_without_an_answer_is_a_broken_one(upstream: LocalUpstream[Bridge]) -> None:
    """The relay reads UpstreamBroken where the server ends a request and says nothing."""
    session, child = await opened(upstream)
    waits = asyncio.create_task(post(upstream, call(), session))
    await child.line()
    child.replies[NUMBER].end()
    with pytest.raises(UpstreamBroken):
        await waits


async def test_a_deleted_session_stops_what_ran_for_it(upstream: LocalUpstream[Bridge]) -> None:
    """The server hears of each session that ends, by DELETE or when the adapter closes."""
    (deleted, _), (open_, _) = await opened(upstream), await opened(upstream)
    request = UpstreamRequest("DELETE", [("Mcp-Session-Id", deleted)])
    assert (await upstream.send(request, PATIENCE)).status == 200
    await upstream.close()
    assert upstream.server.stopped == [deleted, open_, "all"]


async def test_a_get_stream_goes_on_where_it_broke_off(upstream: LocalUpstream[Bridge]) -> None:
    """A client that names the last event it read gets those behind it, once, and then what comes."""
    session, child = await opened(upstream)
    assert child.session is not None
    child.session.send(b'"before anybody listens"')
    stream = await get(upstream, session)
    child.session.send(b'"first"')
    assert await stream.read(PATIENCE) == b'id: 1-1\ndata: "first"\n\n'
    stream.abort()
    child.session.send(b'"missed"')
    stream = await get(upstream, session, "1-1")
    child.session.send(b'"next"')
    assert await stream.read(PATIENCE) == b'id: 1-2\ndata: "missed"\n\nid: 1-3\ndata: "next"\n\n'


async def test_a_stream_gets_nothing_of_another_one(upstream: LocalUpstream[Bridge]) -> None:
    """Events are sent again on the stream that they were for; an id that nobody gave begins a new one."""
    session, child = await opened(upstream)
    assert child.session is not None
    streams = [await get(upstream, session)]
    child.session.send(b'"one"')
    streams.append(await get(upstream, session))
    child.session.send(b'"two"')
    streams.append(await get(upstream, session, "1-1"))
    streams.append(await get(upstream, session, "9-9"))
    child.session.send(b'"three"')
    texts = [await stream.read(PATIENCE) for stream in (streams[0], streams[1], streams[3])]
    assert texts == [b'id: 1-1\ndata: "one"\n\n', b'id: 2-2\ndata: "two"\n\n', b'id: 3-3\ndata: "three"\n\n']
    assert repr(streams[2]) == "<EventStream: open, 0 unread>"


async def test_a_stream_that_nobody_reads_ends(upstream: LocalUpstream[Bridge]) -> None:
    """What did not fit is there for a client that comes back."""
    session, child = await opened(upstream)
    assert child.session is not None
    stream = await get(upstream, session)
    for number in range(UNREAD_AT_MOST + 1):
        child.session.send(b"%d" % number)
    events = await stream.read(PATIENCE)
    assert (events.count(b"data: "), await stream.read(PATIENCE)) == (UNREAD_AT_MOST, b"")
    stream = await get(upstream, session, f"1-{UNREAD_AT_MOST}")
    assert await stream.read(PATIENCE) == b"id: 1-65\ndata: 64\n\n"
