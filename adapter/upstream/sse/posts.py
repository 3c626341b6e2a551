"""Messages on their way to the endpoint of a session, each in a POST of its own.

MCP 2024-11-05 has them accepted (202) and answered on the stream. Servers in use accept with any other status of 2xx,
and some answer in the POST itself, as JSON or as events.
"""

from __future__ import annotations

from collections.abc import Callable

from adapter.errors import AnswerTooLarge
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.messages import LocalAnswer
from adapter.upstream.port import UpstreamReply, UpstreamRequest, header
from adapter.upstream.sse.stream import MESSAGE, body_of, is_event_stream, refusal_of
from adapter.wire.envelope import read_response
from adapter.wire.sse import SseReader

_OF_THE_CLIENTS_SESSION = frozenset(
    {"accept-encoding", "content-encoding", "last-event-id", "mcp-session-id"}
)

Taker = Callable[[bytes], None]
"""Takes a message of the server's."""


async def post(
    endpoint: HttpUpstream, body: bytes, asked: UpstreamRequest, limit: int, take: Taker
) -> LocalAnswer | None:
    """Send a message once. Returns None where it was accepted, else the server's refusal.

    ``asked`` is the client's request that brought it. Messages in the answer, of at most ``limit`` bytes each, are
    handed to ``take``. Raises what Upstream.send raises, UpstreamBroken and AnswerTooLarge. It waits for the answer
    without an end: who waits for the message's own answer bounds it.
    """
    fields = [field for field in asked.headers if field[0].lower() not in _OF_THE_CLIENTS_SESSION]
    request = UpstreamRequest("POST", fields, body, repeatable=asked.repeatable, purpose=asked.purpose)
    reply = await endpoint.send(request, None)
    try:
        if not 200 <= reply.status < 300:
            return await refusal_of(reply)
        if is_event_stream(reply):
            await _take_events(reply, limit, take)
        else:
            await _take_body(reply, limit, take)
    finally:
        reply.abort()
    return None


async def _take_events(reply: UpstreamReply, limit: int, take: Taker) -> None:
    reader = SseReader(limit, skip=True)
    while chunk := await reply.read(None):
        for event in reader.feed(chunk):
            if event.skipped:
                raise AnswerTooLarge()
            if event.data and event.event == MESSAGE:
                take(event.data)


async def _take_body(reply: UpstreamReply, limit: int, take: Taker) -> None:
    kind = (header(reply.headers, "content-type") or "").lower()
    body = await body_of(reply, limit)
    if "json" not in kind:
        return
    if body is None:
        raise AnswerTooLarge()
    # An acknowledgement may be JSON of the server's own: only a response with an id is an answer.
    response = read_response(body)
    if response is not None and response.id is not None:
        take(body)
