"""Sessions with an HTTP+SSE server, as clients of streamable HTTP see them."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from adapter.errors import LimitReached, UpstreamBroken, UpstreamUnreachable
from adapter.upstream.local.correlation import MOST_ABANDONED
from adapter.upstream.port import Headers, UpstreamReply, header
from tests.upstream.raw_peer import PATIENCE
from tests.upstream.sse.clients import (
    AGREED,
    DELAY,
    FIELDS,
    INITIALIZE,
    INITIALIZED,
    Front,
    call,
    result,
    sent,
)
from tests.upstream.sse.scripted_server import SseSite


def error_of(reply: UpstreamReply) -> tuple[int, str]:
    assert reply.whole is not None
    error = orjson.loads(reply.whole)["error"]
    return error["code"], error["message"]


async def test_messages_travel_as_they_were_spelled(site: SseSite, front: Front) -> None:
    """A call is posted to the endpoint with the client's fields, and its answer from the stream is the JSON reply."""
    session, stream = await front.opened()
    assert (await front.post(INITIALIZED, session)).status == 202
    assert (await site.post()).body == INITIALIZED
    waits = front.posting(call(), session)
    post = await site.post()
    assert (post.body, post.target) == (call(), "/messages?session_id=1")
    fields = {line.split(": ")[0].lower(): line.split(": ")[1] for line in post.head.splitlines()[1:] if line}
    assert fields["authorization"] == "Bearer mine" and fields["content-type"] == "application/json"
    assert not {"mcp-session-id", "accept-encoding"} & set(fields)
    await stream.says(result())
    reply = await waits
    assert (reply.whole, header(reply.headers, "content-type")) == (result(), "application/json")


async def test_the_stream_is_asked_for_as_the_client_asked(site: SseSite, front: Front) -> None:
    """The GET carries the client's credentials and query, and nothing that is about a message."""
    waits = asyncio.create_task(front.post(INITIALIZE, query="key=1"))
    stream = await site.stream()
    lines = stream.head.lower().splitlines()
    assert lines[0] == "get /sse?key=1 http/1.1"
    assert "accept: text/event-stream" in lines and "authorization: bearer mine" in lines
    assert not [line for line in lines if line.startswith(("content-", "accept-encoding", "last-event-id"))]
    await stream.opens()
    assert (await site.post()).target == "/messages?session_id=1"
    await stream.says(AGREED)
    assert (await waits).whole == AGREED


async def test_each_session_has_a_stream_of_its_own(site: SseSite, front: Front) -> None:
    """Two clients with one id at once get each its own answer."""
    (one, first), (two, second) = await front.opened(), await front.opened()
    waits = [front.posting(call(), one), front.posting(call(), two)]
    await site.post()
    await site.post()
    other = b'{"jsonrpc":"2.0","id":7,"result":{"of":"two"}}'
    await second.says(other)
    await first.says(result())
    assert [(await each).whole for each in waits] == [result(), other]


async def test_an_answer_may_come_before_its_post_is_accepted(site: SseSite, front: Front) -> None:
    """The reply is filled from the stream, and the 202 behind it leaves a connection that serves again."""
    session, stream = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    post = await site.post()
    await stream.says(result())
    assert (await waits).whole == result()
    await post.answers()
    waits = front.posting(call(8), session)
    post = await site.post()
    await post.answers()
    await stream.says(result(8))
    assert (await waits).whole == result(8)


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "204 No Content"])
async def test_any_success_accepts_a_message(site: SseSite, front: Front, status: str) -> None:
    """Servers that say 200 or 204 for 202 are understood; an acknowledgement in JSON is no answer."""
    session, stream = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    post = await site.post()
    body = b"" if status.startswith("204") else b'{"result":"accepted"}'
    await post.answers(status, body, "Content-Type: application/json")
    await asyncio.sleep(0)
    assert not waits.done()
    await stream.says(result())
    assert (await waits).whole == result()


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_the_answer_may_be_in_the_post(site: SseSite, front: Front, kind: str) -> None:
    """It counts once, also where it is on the stream as well."""
    session, stream = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    post = await site.post()
    body = result() if kind == "application/json" else b"data: " + result() + b"\n\n"
    await post.answers("200 OK", body, f"Content-Type: {kind}")
    assert (await waits).whole == result()
    waits = front.posting(call(8), session)
    post = await site.post()
    await stream.says(result(), result(8))
    await post.answers()
    assert (await waits).whole == result(8)


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "500 Oops"])
async def test_a_refused_call_is_answered_as_it_was_refused(site: SseSite, front: Front, status: str) -> None:
    """Status, fields and body of the refusal are the client's answer, and the session goes on."""
    session, stream = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    await (await site.post()).answers(status, b"no", "WWW-Authenticate: Bearer x")
    reply = await waits
    assert (reply.status, reply.whole) == (int(status[:3]), b"no")
    assert header(reply.headers, "www-authenticate") == "Bearer x"
    site.accepts = True
    await front.is_answered(session, stream)


async def test_an_endpoint_that_forgot_the_session_ends_it(site: SseSite, front: Front) -> None:
    """404 reaches the session layer, which opens a new session; what else was under way may have run."""
    session, stream = await front.opened()
    other = front.posting(call(1), session)
    await site.post()
    site.accepts = False
    waits = front.posting(call(2), session)
    await (await site.post()).answers("404 Not Found", b"Could not find session")
    assert (await waits).status == 404
    with pytest.raises(UpstreamBroken):
        await other
    await stream.left()
    assert (await front.post(call(3), session)).status == 404


async def test_a_notification_that_is_refused_is_told(site: SseSite, front: Front) -> None:
    """It is not acknowledged; a lost session answers it with 404."""
    session, _ = await front.opened()
    site.accepts = False
    waits = front.posting(INITIALIZED, session)
    await (await site.post()).answers("500 Oops", b"")
    with pytest.raises(UpstreamBroken, match="HTTP status 500"):
        await waits
    waits = front.posting(INITIALIZED, session)
    await (await site.post()).answers("404 Not Found", b"")
    assert (await waits).status == 404


async def test_calls_of_clients_that_left_are_bounded(site: SseSite, front: Front) -> None:
    """The oldest of too many is cancelled at the server."""
    session, _ = await front.opened()
    for number in range(1, MOST_ABANDONED + 2):
        waits = front.posting(call(number), session)
        await site.post()
        waits.cancel()
        await asyncio.wait([waits])
    message = (await site.post()).message
    assert (message["method"], message["params"]["requestId"]) == ("notifications/cancelled", 1)


async def test_a_deleted_session_drops_its_stream(site: SseSite, front: Front) -> None:
    """DELETE is answered at once; the server sees its stream end, which is the end of the session there."""
    session, stream = await front.opened()
    listening = await front.get(session)
    assert (await front.delete(session)).status == 200
    await stream.left()
    assert await listening.read(PATIENCE) == b""
    assert (await front.post(call(), session)).status == 404
    assert repr(front.server) == "<SseServer: 0 sessions>"


async def test_a_server_may_agree_to_a_version_of_its_own(site: SseSite, front: Front) -> None:
    """A client names the version that the server agreed to, and is served."""
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens()
    await site.post()
    await stream.says(AGREED.replace(b"2024-11-05", b"2024-10-07"))
    session = header((await waits).headers, "mcp-session-id")
    fields: Headers = (*FIELDS, ("MCP-Protocol-Version", "2024-10-07"))
    waits = asyncio.create_task(front.post(call(), session, fields))
    await site.post()
    await stream.says(result())
    assert (await waits).whole == result()


@pytest.mark.parametrize("number", [None, "1"])
async def test_an_initialize_that_fails_opens_nothing(
    site: SseSite, front: Front, number: str | None
) -> None:
    """The server's error is the answer, and the stream is dropped, also where it could be gone on with."""
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens()
    await site.post()
    error = b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}'
    await stream.says(error, id=number)
    reply = await waits
    assert (reply.status, reply.whole, header(reply.headers, "mcp-session-id")) == (200, error, None)
    await stream.left()
    await asyncio.sleep(5 * DELAY)
    assert site.streams.empty() and repr(front.server) == "<SseServer: 0 sessions>"


async def test_a_client_that_leaves_while_it_is_opened_leaves_no_stream(site: SseSite, front: Front) -> None:
    """The stream is dropped before anything is posted to it."""
    waits = front.posting(INITIALIZE)
    stream = await site.stream()
    waits.cancel()
    await stream.left()
    assert repr(front.server) == "<SseServer: 0 sessions>"


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "subscriptions/listen"])
async def test_a_modern_client_is_told_to_initialize(site: SseSite, front: Front, method: str) -> None:
    """400 and no code of the modern era, which a client of both eras takes for a legacy server."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = orjson.dumps({"jsonrpc": "2.0", "id": 3, "method": method, "params": {"_meta": meta}})
    fields: Headers = (*FIELDS, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method))
    reply = await front.post(body, None, fields)
    assert reply.status == 400 and error_of(reply)[0] == -32600 and "send initialize" in error_of(reply)[1]
    assert reply.whole is not None and orjson.loads(reply.whole)["id"] == 3
    assert site.streams.empty()


async def test_streams_are_limited(site: SseSite) -> None:
    """One more than core.upstream.max_connections allows is refused, and no session is lost for it."""
    front = Front(site, most=1)
    session, stream = await front.opened()
    with pytest.raises(LimitReached, match=r"core\.upstream\.max_connections"):
        await front.post(INITIALIZE)
    waits = await front.called(session)
    await stream.says(result())
    assert (await waits).whole == result()
    await front.close()


async def test_an_upstream_that_closes_answers_what_is_under_way(site: SseSite, front: Front) -> None:
    """Calls and sessions that are just opened fail at once, and nothing is left open."""
    session, stream = await front.opened()
    calling, opening = front.posting(call(), session), front.posting(INITIALIZE)
    await site.post()
    connecting = await site.stream()
    await front.close()
    for waits in (calling, opening):
        with pytest.raises(UpstreamBroken):
            await waits
    await stream.left()
    await connecting.left()
    with pytest.raises(UpstreamUnreachable):
        await front.post(call(), session)


async def test_a_post_that_is_never_accepted_goes_with_its_answer(site: SseSite) -> None:
    """The connection of a call that was answered on the stream is dropped after a while."""
    front = Front(site, linger=0.01)
    session, stream = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    post = await site.post()
    await stream.says(result())
    assert (await waits).whole == result()
    await post.peer.left()
    await front.close()


async def test_a_post_that_is_never_accepted_goes_with_its_client(site: SseSite) -> None:
    """A call that is cancelled gives its connection back too, or a server could keep them all."""
    front = Front(site, linger=0.01)
    session, _ = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    post = await site.post()
    withdrawing = front.posting(sent("notifications/cancelled", requestId=7), session)
    assert (await waits).status == 202
    await post.peer.left()
    await (await site.post()).answers()
    assert (await withdrawing).status == 202
    await front.close()


async def test_a_batch_whose_session_ends_on_the_way_is_answered_404(site: SseSite) -> None:
    """The notification of a batch is under way when the client ends the session."""
    front = Front(site)
    opening = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens()
    await site.post()
    await stream.says(AGREED.replace(b"2024-11-05", b"2025-03-26"))
    session = header((await opening).headers, "mcp-session-id")
    assert session is not None
    site.accepts = False
    waits = front.posting(b"[" + sent("notifications/x") + b"," + call() + b"]", session)
    post = await site.post()
    assert (await front.delete(session)).status == 200
    await post.answers()
    assert (await waits).status == 404
    await front.close()
