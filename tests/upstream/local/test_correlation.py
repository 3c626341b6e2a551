"""Messages of one stream, each brought to its request, to the GET stream, or nowhere."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import structlog

from adapter.errors import BadRequest, UpstreamBroken
from adapter.upstream.local.correlation import Correlation
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import UNREAD_AT_MOST, UNREAD_BYTES, PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import Era

PATIENCE = 5.0


class Line:
    """One session, the stream of its server, and the replies to what was asked."""

    def __init__(self) -> None:
        self.correlation = Correlation(structlog.get_logger("test"))
        self.session: LocalSession = LocalSessions().open("2025-11-25", {})
        self.replies: dict[Any, PendingReply] = {}

    def opened(self) -> Line:
        self.correlation.opened(self.session)
        return self

    def asks(self, number: object, token: object = None, *, streams: bool = True) -> PendingReply:
        """A client sends a request."""
        params = {} if token is None else {"_meta": {"progressToken": token}}
        body = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        envelope = read_envelope(body)
        assert isinstance(envelope, Envelope) and envelope.id is not None
        head = LocalHead(
            Era.LEGACY, {}, UpstreamRequest("POST", ()).caller, streams, UpstreamRequest("POST", ())
        )
        reply = self.replies[number] = PendingReply(lambda: None)
        self.correlation.expect(LocalRequest(envelope, params, head, self.session), reply)
        return reply

    async def says(self, *messages: bytes) -> None:
        """The server sends messages."""
        for message in messages:
            await self.correlation.take(message)


async def read(reply: PendingReply | UpstreamReply) -> bytes:
    """The bytes that a client reads now."""
    if isinstance(reply, PendingReply):
        reply = await reply.head(PATIENCE)
    return await reply.read(PATIENCE)


def progress(token: str) -> bytes:
    return (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b}}' % token.encode()
    )


LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'


async def test_an_answer_meets_its_request_by_the_id() -> None:
    """Answers come in any order and keep their bytes; 1 is not "1", and is 1.0."""
    line = Line().opened()
    one, text, two = line.asks(1), line.asks("1"), line.asks(2)
    mine, yours, third = (
        b'{"id":1.0,  "result":{}}',
        b'{"result":{"pi":3.10}, "id":"1"}',
        b'{"id":2,"error":{}}',
    )
    await line.says(third, yours, mine)
    assert [await read(one), await read(text), await read(two)] == [mine, yours, third]


async def test_a_batch_of_the_server_is_taken_apart() -> None:
    """Each member of a batch meets its own request."""
    line = Line().opened()
    one, two = line.asks(1), line.asks(2)
    await line.says(b' [{"id":2,"result":{}}, {"id":1,"result":[]}]')
    assert [await read(one), await read(two)] == [b'{"id":1,"result":[]}', b'{"id":2,"result":{}}']


async def test_progress_meets_its_request_by_the_token() -> None:
    """Progress opens the stream of the request that has the token, also where the client listens."""
    line = Line().opened()
    listening = line.session.listen()
    one, two = line.asks(1, "a"), line.asks(2, 7)
    await line.says(progress("7"), progress('"a"'), LOG)
    assert [await read(one), await read(two)] == [
        b"data: " + progress('"a"') + b"\n\n",
        b"data: " + progress("7") + b"\n\n",
    ]
    assert await read(listening) == b"id: 1-1\ndata: " + LOG + b"\n\n"


async def test_a_token_of_nobody_goes_to_the_get_stream() -> None:
    """An unknown token, one that is over, and true for 1 belong to no request."""
    line = Line().opened()
    listening = line.session.listen()
    line.asks(1, 1)
    line.asks(2, 2)
    await line.says(b'{"id":2,"result":{}}', progress("2"), progress("true"), progress('"1"'))
    assert (await read(listening)).count(b"id: ") == 3


async def test_a_client_that_does_not_listen_hears_on_its_request() -> None:
    """Without a GET stream a message leaves on the newest request that takes a stream; not another one's progress."""
    line = Line().opened()
    old, new = line.asks(1), line.asks(2)
    line.asks(3, "t", streams=False)
    await line.says(LOG, progress('"t"'), b'{"id":1,"result":{}}')
    assert await read(old) == b'{"id":1,"result":{}}'
    assert await read(new) == b"data: " + LOG + b"\n\n"


async def test_what_comes_early_waits_for_the_first_get_stream() -> None:
    """Messages before the session is open, and before anybody listens, are there for the first stream."""
    line = Line()
    await line.says(LOG, b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    line.opened()
    await line.says(progress("5"), b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
    events = await read(line.session.listen())
    assert [event.split(b": ", 1)[0] for event in events.splitlines()] == [b"id", b"data", b""] * 3
    assert events.index(LOG) < events.index(b"roots/list") < events.index(b"list_changed")


@pytest.mark.parametrize("opened", [True, False])
async def test_what_waits_is_bounded(opened: bool) -> None:
    """So many messages, and so many bytes, wait for a client that never listens."""
    line = Line()
    if opened:
        line.opened()
    large = LOG[:-3] + b"x" * UNREAD_BYTES + b'"}}'
    await line.says(large, *[LOG] * (2 * UNREAD_AT_MOST))
    if not opened:
        line.opened()
    assert (await read(line.session.listen())).count(b"id: ") == UNREAD_AT_MOST


async def test_an_answer_for_nobody_is_dropped() -> None:
    """An unknown id, an id that was answered, and what is no JSON-RPC reach nobody."""
    line = Line().opened()
    listening = line.session.listen()
    one = line.asks(1)
    given_up = line.asks(4)
    line.correlation.forget(4, given_up)
    await line.says(
        b'{"id":9,"result":{}}', b'{"id":4,"result":{}}', b"no", b"3", b"[1", b'{"method":3}', b""
    )
    await line.says(b'{"id":1,"result":1}', b'{"id":1,"result":2}', LOG)
    assert await read(one) == b'{"id":1,"result":1}'
    assert (await read(listening)).count(b"id: ") == 1 and not len(line.correlation)


async def test_an_error_without_an_id_is_that_of_the_only_request() -> None:
    """Of two requests it could be either's, and is dropped."""
    line = Line().opened()
    one, two = line.asks(1), line.asks(2)
    error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'
    await line.says(error, b'{"id":2,"result":{}}', error)
    assert [await read(one), await read(two)] == [error, b'{"id":2,"result":{}}']


async def test_an_id_is_used_once_at_a_time() -> None:
    """A second request with an id that is under way is refused; when the first is over it may come."""
    line = Line().opened()
    line.asks(1)
    with pytest.raises(BadRequest):
        line.asks(1)
    await line.says(b'{"id":1,"result":1}')
    again = line.asks(1)
    await line.says(b'{"id":1,"result":2}')
    assert await read(again) == b'{"id":1,"result":2}'


async def test_a_server_that_is_lost_fails_what_is_under_way() -> None:
    """A request without a stream gets the failure, one with a stream an error event under its id."""
    line = Line().opened()
    plain, streaming = line.asks(1), line.asks("two", "t")
    await line.says(progress('"t"'))
    line.correlation.fail(UpstreamBroken("The server ended."))
    with pytest.raises(UpstreamBroken, match=r"^The server ended\.$"):
        await plain.head(PATIENCE)
    stream = await streaming.head(PATIENCE)
    event = (await stream.read(PATIENCE)).split(b"\n\n")[1]
    assert orjson.loads(event.removeprefix(b"data: ")) == {
        "jsonrpc": "2.0", "id": "two", "error": {"code": -32011, "message": "The server ended."},
    }  # fmt: skip
    assert await stream.read(PATIENCE) == b""
