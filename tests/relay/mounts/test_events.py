"""Streams of one server of a merged mount, cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import AnswerTooLarge, UpstreamBroken
from adapter.relay.exchange import ClientResponse, Flow
from adapter.relay.mounts.events import MemberEvents, told_apart
from adapter.relay.mounts.sessions import MountSession
from adapter.relay.replies import LARGE
from adapter.relay.server import Server, TransferRules
from adapter.relay.sessions.session_map import Session
from adapter.rules.access.access_rules import ListShape
from adapter.rules.mounts.lists import PROMPTS
from adapter.upstream.port import Sink
from tests.scripted import ScriptedUpstream

SSE = [("Content-Type", "text/event-stream")]
EVENTS = [
    (b'data: {"id":1,"result":{}}\n\n', b'data: {"id":1,"result":{}}\n\n'),
    (b'id: 5\r\ndata: {"id":1,"result":{}}\r\n\r\n', b'id: a.5\r\ndata: {"id":1,"result":{}}\r\n\r\n'),
    (b'data: {"id":1,"method":"ping"}\n\n', b'data: {"id":"a.1","method":"ping"}\n\n'),
    (b": ping\n\n", b": ping\n\n"),
    (b"id\ndata: 1\n\n", b"id\ndata: 1\n\n"),
    (b"retry: 10\nid: x\n\n", b"retry: 10\nid: a.x\n\n"),
]


def server(limit: int = 1 << 20) -> Server:
    return Server("a", "/mcp/a", ScriptedUpstream(), rules=TransferRules(answer_limit=limit))


async def left(events: MemberEvents, stream: list[bytes]) -> bytes:
    """What leaves of a stream that is poured in these chunks."""
    took: list[bytes] = []

    class Client:
        def put(self, chunk: bytes, *, more: bool = False) -> bool:
            took.append(chunk)
            return len(took) % 2 == 0

        async def drained(self) -> None:
            pass

    async def pour(sink: Sink) -> None:
        for chunk in stream:
            if not sink.put(chunk):
                await sink.drained()

    async def pieces() -> AsyncGenerator[bytes, None]:
        for chunk in stream:
            yield chunk

    await events.pour(Flow(pieces, pour), Client())
    return b"".join(took)


@given(st.lists(st.sampled_from(EVENTS), max_size=8), st.integers(1, 40))
def test_slicing_never_changes_what_leaves(events: list[tuple[bytes, bytes]], step: int) -> None:
    """Ids of events and requests are told apart wherever chunks end."""
    stream, expected = b"".join(came for came, _ in events), b"".join(shown for _, shown in events)
    cut = [stream[start : start + step] for start in range(0, len(stream), step)]
    assert asyncio.run(left(MemberEvents(server(), lambda *_: None, own=1), cut)) == expected
    whole = [came for came, _ in events]
    assert asyncio.run(left(MemberEvents(server(), lambda *_: None, own=1), whole)) == expected


async def test_an_event_above_the_limit_is_refused() -> None:
    """No more than one answer may have is kept of a stream."""
    reader = MemberEvents(server(100), lambda *_: None)
    with pytest.raises(AnswerTooLarge, match="max_answer_bytes"):
        await reader.feed(b"data: " + b"x" * 200)


async def test_a_changed_list_is_noticed() -> None:
    """The mount hears from which server the news came, and of which list."""
    news: list[tuple[str, ListShape]] = []
    await MemberEvents(server(), lambda *told: news.append(told)).feed(
        b'data: {"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}\n\n'
    )
    assert news == [("a", PROMPTS)]


async def test_a_whole_answer_is_told_apart() -> None:
    """A stream that came at once is read as one that comes in pieces, and its length is not told any more."""
    fields = [*SSE, ("ETag", "x")]
    came = ClientResponse(200, fields, b"".join(came for came, _ in EVENTS))
    answer = await told_apart(came, server(), print, own=1)
    assert answer.body == b"".join(shown for _, shown in EVENTS)
    assert answer.headers == SSE


LONG = b'"x":"' + b"x" * LARGE + b'"'


@pytest.mark.parametrize("filling", [b"", LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    "forged",
    [
        b'{"jsonrpc":"2.0","id":"two","result":{%b}}',
        b'{"id":"one","result":{%b},"id":"two"}',
        rb'{"result":{"id":"one"},"\u0069d":"two","x":{%b}}',
        b'{"id":"two","method":null,"error":{%b}}',
        b'[{"id":"two","result":{%b}}]',
        b'{"Id":"two","result":{%b}}',
        b'{"id":"one","ID":"two","result":{%b}}',
        b'{"result":%b,"id":"two"}' % (b"[" * 5_000 + b"]" * 5_000),
        pytest.param(b'{"result":%b,"id":"two"}' % (b"[" * 100_001 + b"]" * 100_001), marks=pytest.mark.deep),
    ],
)
async def test_no_server_answers_for_another_one(forged: bytes, filling: bytes) -> None:
    """A client tells answers by their ids alone, in either era, and wherever it asked: so a stream answers its own
    request, and a whole answer is none to another.
    """
    forged = forged.replace(b"%b", filling)
    limits = server(4 << 20)
    assert await MemberEvents(limits, print, own="one").feed(b"data: " + forged + b"\n\n") == b""
    assert await MemberEvents(limits, print, subscription=True).feed(b"data: " + forged + b"\n\n") == b""
    fields = [("Content-Type", "application/json")]
    with pytest.raises(UpstreamBroken, match="not sent"):
        await told_apart(ClientResponse(200, fields, forged), limits, print, own="one")
    refusal = await told_apart(ClientResponse(400, fields, forged), limits, print, own="one")
    assert refusal.body == forged, "an answer to nobody's request, which SDKs give an id of their own"


@pytest.mark.parametrize("filling", [b"", LONG], ids=["short", "long"])
async def test_what_a_server_says_itself_arrives(filling: bytes) -> None:
    """Its answer, an error that names no request, and what is no answer, however long."""
    texts = [
        b'{"id":"one","result":{%b}}',
        b'{"error":{%b},"id":null}',
        b'{"method":"x","params":{%b}}',
        b"{%b",
    ]
    for text in texts:
        data = b"data: " + text.replace(b"%b", filling) + b"\n\n"
        assert await MemberEvents(server(), print, own="one").feed(data) == data


async def test_a_stream_that_answers_no_request_carries_answers_where_it_is_resumed() -> None:
    """And then none that the client waits for from another server, or from the mount."""
    session = MountSession("s", cast(Session, None))
    said = b'data: {"jsonrpc":"2.0","id":5,"result":{"tools":[]}}\n\n'
    assert await MemberEvents(server(), print, session=session).feed(said) == b""
    reader = MemberEvents(server(), print, session=session, resumed=True)
    assert await reader.feed(said) == said
    with session.holding(5):
        assert await reader.feed(said) == b""
        session.under_way[5] = "a"
        assert await reader.feed(said) == said
    session.under_way[5] = "b"
    assert await reader.feed(said) == b""


async def test_an_answer_without_ids_of_the_server_is_left_alone() -> None:
    """Most answers leave as they came."""
    came = ClientResponse(200, [("Content-Type", "application/json")], b'{"id":1,"result":{"x":1.0}}')
    body = came.body
    assert await told_apart(came, server(), print, own=1) is came
    assert came.body is body
