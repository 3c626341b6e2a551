"""Messages of one line to a server, each brought to its request, to the GET stream, or nowhere."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from adapter.errors import UpstreamBroken
from adapter.rules.access.principals import NOBODY
from adapter.upstream.local.correlation import (
    BOUNDS,
    CROWDED,
    MOST_ABANDONED,
    UNREAD,
    Correlation,
    RequestUnderWay,
)
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import Deadlines, PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, messages_of

PATIENCE = 20.0
LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'


class Line:
    """One session and the line to its server; ``told`` is what happened on it, ``sent`` what the server read."""

    def __init__(self, *, shared: bool = False) -> None:
        self.correlation = Correlation(self, shared=shared)
        self.session: LocalSession = LocalSessions(bounds=BOUNDS).open("2025-11-25")
        self.told: list[object] = []
        self.sent: list[bytes] = []

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def cancel(self, request: RequestUnderWay) -> None:
        self.told.append(("cancel", request.number))

    def take(self, message: LineMessage) -> None:
        self.correlation.tell(self.session, message.data)

    def asks(self, number: Any, token: Any = None, *, streams: bool = True) -> PendingReply:
        """A client sends a request."""
        params = {} if token is None else {"_meta": {"progressToken": token}}
        body = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        envelope = read_envelope(body)
        assert isinstance(envelope, Envelope)
        head = LocalHead(Era.LEGACY, {}, NOBODY, streams, UpstreamRequest("POST", []))
        way = RequestUnderWay(LocalRequest(envelope, params, head), None, self.correlation.give_up)
        way.session = self.session
        self.sent.append(self.correlation.numbered(way, envelope))
        self.correlation.requests.add(way)
        return way

    def says(self, *messages: bytes) -> list[bool]:
        """The server sends messages; tells of each whether it answered a request."""
        read = [each for message in messages for each in messages_of(message)]
        return [self.correlation.receive(each) is not None for each in read]


async def read(reply: PendingReply | UpstreamReply) -> bytes:
    """The bytes that a client reads now."""
    if isinstance(reply, PendingReply):
        reply = await reply.head(PATIENCE, Deadlines())
    return await reply.read(PATIENCE)


def progress(token: str, more: str = "") -> bytes:
    params = f'{{"progressToken":{token},"message":"{more}"}}'
    return b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params.encode()


async def test_an_answer_meets_its_request_by_the_id() -> None:
    """Answers come in any order and keep their bytes; 1 is not "1", and is 1.0."""
    line = Line()
    one, text, two = line.asks(1), line.asks("1"), line.asks(2)
    mine, yours, third = (
        b'{"id":1.0,  "result":{}}',
        b'{"result":{"pi":3.10}, "id":"1"}',
        b'{"id":2,"error":{}}',
    )
    assert line.says(third, yours, mine) == [True, True, True]
    assert [await read(one), await read(text), await read(two)] == [mine, yours, third]


async def test_a_batch_of_the_server_is_taken_apart() -> None:
    """Each member of a batch meets its own request."""
    line = Line()
    one, two = line.asks(1), line.asks(2)
    line.says(b' [{"id":2,"result":{}}, {"id":1,"result":[]}]')
    assert [await read(one), await read(two)] == [b'{"id":1,"result":[]}', b'{"id":2,"result":{}}']


async def test_progress_meets_its_request_by_the_token() -> None:
    """Progress opens the stream of the request that has the token, also where the client listens."""
    line = Line()
    listening = line.session.listen()
    one, two = line.asks(1, "a"), line.asks(2, 7)
    line.says(progress("7"), progress('"a"'), LOG)
    assert await read(one) == b"id: 3-2\ndata: " + progress('"a"') + b"\n\n"
    assert await read(two) == b"id: 2-1\ndata: " + progress("7") + b"\n\n"
    assert await read(listening) == b"id: 1-3\ndata: " + LOG + b"\n\n"


async def test_a_token_of_nobody_goes_to_the_get_stream() -> None:
    """An unknown token, one that is over, and true for 1 belong to no request."""
    line = Line()
    listening = line.session.listen()
    line.asks(1, 1)
    line.asks(2, 2)
    line.says(b'{"id":2,"result":{}}', progress("2"), progress("true"), progress('"1"'))
    assert (await read(listening)).count(b"id: ") == 3


async def test_a_client_that_does_not_listen_hears_on_its_request() -> None:
    """Without a GET stream a message leaves on the newest request that takes a stream."""
    line = Line()
    old, new = line.asks(1), line.asks(2)
    line.asks(3, streams=False)
    line.says(LOG, b'{"id":1,"result":{}}')
    assert await read(old) == b'{"id":1,"result":{}}'
    assert await read(new) == b"id: 1-1\ndata: " + LOG + b"\n\n"


async def test_what_comes_early_waits_for_the_first_get_stream() -> None:
    """Messages before anybody listens are there for the first stream, as far as they are not too many."""
    line = Line()
    line.says(LOG, b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    events = await read(line.session.listen())
    assert events.index(LOG) < events.index(b"roots/list")
    line = Line()
    line.says(*[LOG] * (BOUNDS.messages + 1))
    assert (await read(line.session.listen())).count(b"id: ") == BOUNDS.messages


async def test_an_answer_for_nobody_is_dropped() -> None:
    """An unknown id, and an id that was answered, reach nobody."""
    line = Line()
    one = line.asks(1)
    assert line.says(b'{"id":9,"result":{}}', b'{"id":1,"result":1}', b'{"id":1,"result":2}') == [
        False,
        True,
        False,
    ]
    assert await read(one) == b'{"id":1,"result":1}'
    assert repr(line.correlation) == "<Correlation: 0 under way>"


async def test_an_error_without_an_id_is_that_of_the_only_request() -> None:
    """Of two requests it could be either's, and is dropped."""
    line = Line()
    one, two = line.asks(1), line.asks(2)
    error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'
    assert line.says(error, b'{"id":2,"result":{}}', error, error) == [False, True, True, False]
    assert [await read(one), await read(two)] == [error, b'{"id":2,"result":{}}']


async def test_a_server_that_is_lost_fails_what_is_under_way() -> None:
    """A request without a stream gets the failure, one with a stream an error event under its id."""
    line = Line()
    plain, streaming = line.asks(1), line.asks("two", "t")
    line.says(progress('"t"'))
    line.correlation.fail(UpstreamBroken("The server ended."))
    with pytest.raises(UpstreamBroken, match=r"^The server ended\.$"):
        await plain.head(PATIENCE, Deadlines())
    stream = await streaming.head(PATIENCE, Deadlines())
    event = (await stream.read(PATIENCE)).split(b"\n\n")[1]
    assert orjson.loads(event.partition(b"data: ")[2]) == {
        "jsonrpc": "2.0", "id": "two", "error": {"code": -32011, "message": "The server ended."},
    }  # fmt: skip
    assert await stream.read(PATIENCE) == b""


async def test_a_client_that_leaves_cancels_nothing_at_first() -> None:
    """Its request runs on; the oldest of too many such requests is cancelled."""
    line = Line()
    replies = [line.asks(number) for number in range(MOST_ABANDONED + 1)]
    for reply in replies[:-1]:
        reply.give_up()
    assert line.told == []
    replies[-1].give_up()
    assert line.told == [("cancel", 0)] and replies[0].over
    assert line.says(b'{"id":0,"result":{}}', b'{"id":1,"result":{}}') == [False, True]


async def test_an_id_of_an_abandoned_request_may_be_used_again() -> None:
    """What was answered long ago takes no later request of the same id with it."""
    line = Line()
    for _ in range(MOST_ABANDONED):
        line.asks(1).give_up()
        line.says(b'{"id":1,"result":{}}')
    waiting = line.asks(1)
    line.asks(2).give_up()
    assert line.told == [] and not waiting.over
    assert line.says(b'{"id":1,"result":{}}') == [True]


async def test_a_server_that_cancels_its_own_request_cancels_no_call() -> None:
    """Both sides number from 1; the client hears of it on its stream, and its call is answered."""
    line = Line()
    call = line.asks(1)
    cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    line.says(cancelled, b'{"id":1,"result":{}}')
    assert [each for each in (await read(call)).split(b"\n") if each.startswith(b"data: ")] == [
        b"data: " + cancelled,
        b'data: {"id":1,"result":{}}',
    ]


async def test_a_request_that_is_withdrawn_is_over() -> None:
    """The client's own notification tells the server; one that waited too long is cancelled by the adapter."""
    line = Line()
    withdrawn, overdue = line.asks(1), line.asks(2)
    withdrawn.withdraw()
    overdue.overdue = True
    overdue.give_up()
    assert (line.told, withdrawn.over, overdue.over) == ([("cancel", 2)], True, True)


async def test_a_slow_client_makes_its_server_wait() -> None:
    """The line is not read while much is unread, and read on when the client has caught up."""
    line = Line()
    reply = line.asks(1, 1)
    line.says(progress("1", "x" * CROWDED))
    assert line.told == ["pause"]
    await read(reply)
    assert line.told == ["pause", "resume"]
    line.correlation.close()


async def test_an_id_that_is_used_twice_is_told_apart() -> None:
    """The second request travels under an id and a token of the adapter's own, and is answered under its own."""
    line = Line()
    first, second = line.asks(1, 1), line.asks(1, 1)
    other = orjson.loads(line.sent[1])
    assert (other["id"], other["params"]["_meta"]["progressToken"]) == (
        "mcp-file-adapter-1",
        "mcp-file-adapter-1",
    )
    line.says(b'{"id":"mcp-file-adapter-1","result":2}', b'{"id":1,"result":1}')
    assert [await read(first), await read(second)] == [b'{"id":1,"result":1}', b'{"id":1,"result":2}']


async def test_a_line_of_many_waits_for_none() -> None:
    """A client of a shared line that leaves too much unread loses its answer, and the server is told."""
    line = Line(shared=True)
    reply = line.asks(1, 1)
    stream = asyncio.create_task(reply.head(PATIENCE, Deadlines()))
    line.says(*[progress("1", "x" * CROWDED)] * 5)
    assert line.told == [("cancel", 1)]
    events = await read(await stream)
    assert events.count(b"data: ") == 4 and UNREAD.encode() in events
