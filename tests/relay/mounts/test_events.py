"""Streams of one server of a merged mount, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import AnswerTooLarge
from adapter.relay.exchange import ClientResponse
from adapter.relay.mounts.events import MemberEvents, told_apart
from adapter.relay.server import Server, TransferRules
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


@given(st.lists(st.sampled_from(EVENTS), max_size=8), st.integers(1, 40))
def test_slicing_never_changes_what_leaves(events: list[tuple[bytes, bytes]], step: int) -> None:
    """Ids of events and requests are told apart wherever chunks end."""
    stream, expected = b"".join(came for came, _ in events), b"".join(shown for _, shown in events)
    reader = MemberEvents(server(), lambda _: None)
    cut = [stream[start : start + step] for start in range(0, len(stream), step)]
    assert b"".join(map(reader.feed, cut)) + reader.rest == expected


def test_an_event_above_the_limit_is_refused() -> None:
    """No more than one answer may have is kept of a stream."""
    reader = MemberEvents(server(100), lambda _: None)
    with pytest.raises(AnswerTooLarge, match="max_answer_bytes"):
        reader.feed(b"data: " + b"x" * 200)


def test_a_changed_list_is_noticed() -> None:
    """The mount hears from which server the news came."""
    news: list[str] = []
    MemberEvents(server(), news.append).feed(
        b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
    )
    assert news == ["a"]


def test_a_whole_answer_is_told_apart() -> None:
    """A stream that came at once is read as one that comes in pieces, and its length is not told any more."""
    fields = [*SSE, ("ETag", "x")]
    answer = told_apart(ClientResponse(200, fields, b"".join(came for came, _ in EVENTS)), server(), print)
    assert answer.body == b"".join(shown for _, shown in EVENTS)
    assert answer.headers == SSE


def test_an_answer_without_ids_of_the_server_is_left_alone() -> None:
    """Most answers leave as they came."""
    came = ClientResponse(200, [("Content-Type", "application/json")], b'{"id":1,"result":{"x":1.0}}')
    body = came.body
    assert told_apart(came, server(), print) is came
    assert came.body is body
