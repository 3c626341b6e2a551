"""The two ways to a server of one session: the event stream that it opens, and the messages that it posts.

Source of the rules: MCP 2024-11-05, "HTTP with SSE": the first event is ``endpoint``, a URI for messages; each later
one is a ``message``. Messages to the server are accepted (202) and answered on the stream. Servers in use accept with
any other status of 2xx, and some answer in the POST itself, as JSON or as events. WHATWG HTML, "Server-sent events",
says what a client sends when it comes back.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urljoin

from adapter.errors import AnswerTooLarge, UpstreamBroken, UpstreamSilent
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.replies import LocalAnswer
from adapter.upstream.port import Headers, Purpose, UpstreamReply, UpstreamRequest, always, header
from adapter.wire.envelope import read_response
from adapter.wire.sse import SseEvent, SseReader

ENDPOINT = b"endpoint"
MESSAGE = b"message"

LONGEST_ENDPOINT = 8 * 1024
"""Bytes of the URI that a server names."""

REFUSAL_BYTES = 64 * 1024
"""Bytes of a refusal that reach the client."""

_NOT_IN_A_URI = re.compile(rb"[\x00-\x20\x7f-\xff]")
_FRAMING = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
_OF_A_MESSAGE = frozenset(
    {
        "accept",
        "accept-encoding",
        "content-encoding",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
    }
)


_OF_THE_CLIENTS_SESSION = frozenset(
    {"accept-encoding", "content-encoding", "last-event-id", "mcp-session-id"}
)

Taker = Callable[[bytes], None]
"""Takes a message of the server's."""


@dataclass(frozen=True, slots=True)
class SseAddress:
    """The upstream, its ``url`` as a base of the endpoints that it names, and the limits of a session there:
    ``answer_limit`` in bytes of one event or answer, all others in seconds.

    ``patience`` is for the endpoint of a stream and for the answer to a notification. ``linger`` is the time that a
    POST still has when its message has been answered on the stream. ``delay`` passes before a stream is opened again,
    where the server wants no other time.
    """

    http: HttpUpstream
    url: str
    answer_limit: int
    patience: float
    linger: float = 5.0
    delay: float = 0.25


class StreamRefusedError(Exception):
    """A server that opened no stream, and its answer."""

    def __init__(self, answer: LocalAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class SseStream:
    """The events of an answer. ``target`` is the whole URL of the endpoint that was named on it, empty without one."""

    def __init__(self, reply: UpstreamReply, limit: int) -> None:
        self.target = ""
        self.opened_at = asyncio.get_running_loop().time()
        self._reply = reply
        self._reader = SseReader(limit, skip=True)
        self._ahead: deque[SseEvent] = deque()

    @property
    def last_id(self) -> bytes:
        """The id of the last event, empty where the server gives none."""
        return self._reader.last_id

    @property
    def retry(self) -> int | None:
        """Milliseconds after which the server wants its client back."""
        return self._reader.retry

    async def next(self) -> SseEvent | None:
        """The next event, None at the clean end. Raises UpstreamBroken."""
        while not self._ahead:
            chunk = await self._reply.read(None)
            if not chunk:
                return None
            self._ahead.extend(self._reader.feed(chunk))
        return self._ahead.popleft()

    def close(self) -> None:
        """Drop the connection, which ends the session at the server."""
        self._reply.abort()


async def open_stream(address: SseAddress, headers: Headers, query: str, last_id: bytes = b"") -> SseStream:
    """Open the stream of a new session, or with ``last_id`` that of one which broke off. Raises StreamRefusedError,
    UpstreamSilent where no endpoint comes in time, UpstreamBroken where it is none or of another origin, and what
    Upstream.send raises.
    """
    fields = [field for field in headers if field[0].lower() not in _OF_A_MESSAGE]
    fields.append(("Accept", "text/event-stream"))
    if last_id:
        fields.append(("Last-Event-ID", last_id.decode("latin-1")))
    request = UpstreamRequest("GET", fields, query=query, repeatable=always, purpose=Purpose.STREAM)
    try:
        async with asyncio.timeout(address.patience):
            reply = await address.http.send(request, None)
            try:
                return await _started(reply, address)
            except BaseException:
                reply.abort()
                raise
    except TimeoutError:
        raise UpstreamSilent(
            f"The upstream server named no endpoint on its event stream within {address.patience:g} s."
        ) from None


async def _started(reply: UpstreamReply, address: SseAddress) -> SseStream:
    if reply.status != 200:
        raise StreamRefusedError(await refusal_of(reply))
    if not is_event_stream(reply):
        raise UpstreamBroken(
            "The upstream server answered GET with no event stream: upstream.url may be that of a "
            "streamable_http server."
        )
    stream = SseStream(reply, address.answer_limit)
    while (event := await stream.next()) is not None:
        if event.event == ENDPOINT and event.data is not None:
            stream.target = target_of(event.data, address)
            return stream
    raise UpstreamBroken("The upstream server ended its event stream before it named an endpoint.")


def target_of(uri: bytes, address: SseAddress) -> str:
    """The whole URL of an endpoint. Raises UpstreamBroken for what is none of the upstream's origin."""
    if len(uri) > LONGEST_ENDPOINT or _NOT_IN_A_URI.search(uri):
        raise UpstreamBroken("The upstream server named an endpoint that is no URI.")
    try:
        target = urljoin(address.url, uri.decode("ascii"))
        address.http.toward(target)
    except ValueError as error:
        raise UpstreamBroken(f"The upstream server named an endpoint that is not used. {error}") from None
    return target


def is_event_stream(reply: UpstreamReply) -> bool:
    """Tell whether the body is an event stream that can be read as it comes."""
    kind = (header(reply.headers, "content-type") or "").partition(";")[0].strip().lower()
    coding = (header(reply.headers, "content-encoding") or "identity").strip().lower()
    return kind == "text/event-stream" and coding == "identity"


async def refusal_of(reply: UpstreamReply) -> LocalAnswer:
    """A refusal with its status, its fields and as much of its body as is read."""
    body = await body_of(reply, REFUSAL_BYTES)
    headers: Headers = [field for field in reply.headers if field[0].lower() not in _FRAMING]
    return LocalAnswer(body or b"", reply.status, headers=headers)


async def body_of(reply: UpstreamReply, limit: int) -> bytes | None:
    """The body; None, and the connection dropped, where it is longer than ``limit`` bytes."""
    if reply.whole is not None:
        return reply.whole if len(reply.whole) <= limit else None
    pieces: list[bytes] = []
    size = 0
    while piece := await reply.read(None):
        size += len(piece)
        if size > limit:
            reply.abort()
            return None
        pieces.append(piece)
    return b"".join(pieces)


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
    stream = SseStream(reply, limit)
    while (event := await stream.next()) is not None:
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
