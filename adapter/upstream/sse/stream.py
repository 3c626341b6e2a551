"""The two ways to a server of one session: the event stream that it opens, and the messages that it posts.

Source of the rules: MCP 2024-11-05, "HTTP with SSE": the first event is ``endpoint``, a URI for messages; each later
one is a ``message``. Messages to the server are accepted (202) and answered on the stream. Servers in use accept with
any other status of 2xx, and some answer in the POST itself, as JSON or as events. WHATWG HTML, "Server-sent events",
says what a client sends when it comes back.

The line from a server to one session: its stream, read to its end and opened again while the server goes on.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urljoin

from structlog.typing import FilteringBoundLogger

from adapter.errors import (
    AdapterError,
    AnswerTooLarge,
    SessionUnknown,
    UpstreamBroken,
    UpstreamSilent,
    UpstreamUnreachable,
)
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
    """An open stream whose server has named its endpoint. ``target`` is the endpoint's whole URL."""

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


ATTEMPTS = 3
"""Attempts to open a stream again whose server cannot be reached."""

LONGEST_RETRY = 10.0
"""Seconds of a server's ``retry:`` that are waited at most."""

SHORT_LIVED = 5.0
"""Seconds; so many streams in a row as there are attempts, each shorter than this, end the session."""

BURST = 64
"""Events that are taken before others get a turn: a flood of small ones comes in large pieces."""


class LineOwner(Protocol):
    """The session that a line belongs to."""

    def receive(self, data: bytes) -> None:
        """Take the data of a message event."""

    def overflowed(self) -> None:
        """Note that an event was above the limit: it may have been the answer to any request."""

    def interrupted(self, error: AdapterError) -> None:
        """Note that answers to what was sent may be lost, while the session may go on."""

    def lost(self, error: AdapterError) -> None:
        """Note that the line is over, and the session with it. ``error`` is for what was sent."""


class SseLine:
    """Opens and reads the streams of one session, each in place of the one before."""

    def __init__(self, address: SseAddress, log: FilteringBoundLogger, owner: LineOwner) -> None:
        self._address = address
        self._log = log
        self._owner = owner
        self.headers: Headers = ()
        """The fields of the client's latest request: the next stream is asked for with them, and the first's query."""
        self._query = ""
        self._stream: SseStream | None = None
        self._endpoint: asyncio.Future[HttpUpstream] = asyncio.get_running_loop().create_future()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reading: asyncio.Task[None] | None = None

    async def open(self, request: UpstreamRequest) -> None:
        """Open the first stream, for this request. Raises what ``open_stream`` raises."""
        self.headers, self._query = request.headers, request.query
        stream = await open_stream(self._address, self.headers, self._query)
        self._follow(stream)
        self._reading = asyncio.create_task(self._run(stream))

    async def endpoint(self) -> HttpUpstream:
        """The endpoint for messages, as soon as a stream is open. Raises SessionUnknown where none will be."""
        return await asyncio.shield(self._endpoint)

    def pause(self) -> None:
        """Read no further event until ``resume`` is called."""
        self._may_read.clear()

    def resume(self) -> None:
        """Read on."""
        self._may_read.set()

    def close(self) -> None:
        """Drop the stream, which ends the session at the server."""
        if self._stream is not None:
            self._stream.close()
        if not self._endpoint.done():
            self._endpoint.set_exception(SessionUnknown())
            # Nobody may have waited for it.
            self._endpoint.exception()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    async def closed(self) -> None:
        """Wait until nothing of a closed line runs any more."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    def _follow(self, stream: SseStream) -> None:
        self._stream = stream
        self._endpoint.set_result(self._address.http.toward(stream.target))

    # --- reading --------------------------------------------------------------------------------------------------

    async def _run(self, stream: SseStream) -> None:
        """Read the stream, and those that are opened in its place, until there is no other."""
        short = 0
        lost: AdapterError = UpstreamBroken()
        again: SseStream | None = stream
        try:
            while again is not None:
                stream = again
                lost = await self._read(stream)
                stream.close()
                lived = asyncio.get_running_loop().time() - stream.opened_at
                short = short + 1 if lived < SHORT_LIVED else 0
                again = await self._reconnected(stream, lost) if short < ATTEMPTS else None
        finally:
            self._owner.lost(lost)

    async def _read(self, stream: SseStream) -> UpstreamBroken:
        """Take what comes, to the end of the stream; the failure of what was under way then."""
        try:
            for taken in itertools.count(1):
                if (event := await stream.next()) is None:
                    break
                self._take(event, stream)
                await self._may_read.wait()
                if taken % BURST == 0:
                    await asyncio.sleep(0)
        except UpstreamBroken as error:
            return error
        return UpstreamBroken("The upstream server ended its event stream; the call may have run.")

    def _take(self, event: SseEvent, stream: SseStream) -> None:
        if event.skipped:
            self._owner.overflowed()
        elif event.event == ENDPOINT and event.data is not None:
            # Without it the stream is not opened again.
            named, stream.target = stream.target, ""
            if target_of(event.data, self._address) != named:
                raise UpstreamBroken("The upstream server named a second endpoint; the call may have run.")
            stream.target = named
        elif event.event == MESSAGE and event.data:
            self._owner.receive(event.data)

    # --- reconnecting ---------------------------------------------------------------------------------------------

    async def _reconnected(self, before: SseStream, lost: AdapterError) -> SseStream | None:
        """Open the stream again; None where the server does not go on with the session.

        It does where it names the same endpoint. A server that numbers its events sends again what was missed, so that
        calls wait for it; without numbers an answer may be lost, so each call is told now.
        """
        if not before.target:
            return None
        self._endpoint = asyncio.get_running_loop().create_future()
        if not before.last_id:
            self._owner.interrupted(lost)
        stream = await self._opened_again(before)
        if stream is None:
            return None
        if stream.target != before.target:
            stream.close()
            return None
        self._log.info("an event stream of an upstream was opened again")
        self._follow(stream)
        return stream

    async def _opened_again(self, before: SseStream) -> SseStream | None:
        least = self._address.delay
        delay = least if before.retry is None else min(before.retry / 1000, LONGEST_RETRY)
        for _ in range(ATTEMPTS):
            await asyncio.sleep(max(delay, least))
            try:
                return await open_stream(self._address, self.headers, self._query, before.last_id)
            except UpstreamUnreachable:
                delay = 2 * delay
            except (AdapterError, StreamRefusedError):
                return None
        return None
