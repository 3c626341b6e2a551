"""An SSE server behind a LocalUpstream: its sessions, whose requests are sent by POST and answered on a stream."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import (
    AdapterError,
    AnswerTooLarge,
    BadJson,
    BadRequest,
    SessionUnknown,
    UpstreamBroken,
    UpstreamRefused,
    UpstreamSilent,
    UpstreamUnreachable,
)
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.correlation import BOUNDS, Correlation, RequestUnderWay, Taker
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, notification
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.port import Headers, UpstreamRequest, dropped
from adapter.upstream.sse.stream import (
    ENDPOINT,
    MESSAGE,
    SseAddress,
    SseStream,
    StreamRefusedError,
    open_stream,
    post,
    target_of,
)
from adapter.wire.envelope import Envelope, failure
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, agreed_version, messages_of
from adapter.wire.shared_ids import CANCELLED
from adapter.wire.sse import SseEvent

ATTEMPTS = 3
"""Attempts to open a stream again whose server cannot be reached."""

LONGEST_RETRY = 10.0
"""Seconds of a server's ``retry:`` that are waited at most."""

SHORT_LIVED = 5.0
"""Seconds; so many streams in a row as there are attempts, each shorter than this, end the session."""

BURST = 64
"""Events that are taken before others get a turn: a flood of small ones comes in large pieces."""

_NOT_FOUND = 404
_UNAUTHORIZED = 401


class SseSession:
    """Sends the messages of a client's session, and brings it those of the server. It is over when ``local`` ends.

    Its streams are opened and read to their ends, each in place of the one before, while the server goes on. A request
    is sent once: what was sent when the stream is lost fails as one that may have run.
    """

    def __init__(self, address: SseAddress, log: FilteringBoundLogger, local: LocalSession) -> None:
        self._address = address
        self._log = log
        self._local = local
        self._correlation = Correlation(self)
        self._headers: Headers = ()
        """The fields of the client's latest request: the next stream is asked for with them, and the first's query."""
        self._query = ""
        self._stream: SseStream | None = None
        self._endpoint: asyncio.Future[HttpUpstream] = asyncio.get_running_loop().create_future()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._over = False
        self._unsent: dict[RequestUnderWay, None] = {}
        self._posts: dict[RequestUnderWay, asyncio.Task[None]] = {}
        # The one that reads, and cancellations.
        self._others: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        state = "over" if self._over else "open"
        return f"<SseSession: {state}, {len(self._correlation.requests)} under way>"

    # --- requests -------------------------------------------------------------------------------------------------

    def open(self, request: LocalRequest) -> PendingReply:
        """Open the stream, and send the ``initialize`` that this is."""
        self._query = request.head.request.query
        way = self._begin(request, self._agreed)
        self._start(self._read_streams(way))
        return way

    def call(self, request: LocalRequest) -> PendingReply:
        """Send a request. While the stream is opened again it waits; a session that is lost answers it with 404."""
        return self._begin(request, self._answered)

    def _begin(self, request: LocalRequest, taker: Taker) -> RequestUnderWay:
        self._headers = request.head.request.headers
        way = RequestUnderWay(request, self._local, self._give_up, taker)
        self._unsent[way] = None
        task = self._posts[way] = asyncio.create_task(self._sent(way, request))
        task.add_done_callback(lambda _: self._posts.pop(way, None))
        return way

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that ends with the session."""
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _sent(self, way: RequestUnderWay, request: LocalRequest) -> None:
        """Send one request. Its reply is filled from the stream, or from the answer to the POST."""
        try:
            endpoint = await asyncio.shield(self._endpoint)
            self._unsent.pop(way, None)
            body = self._correlation.numbered(way, request.envelope)
            self._correlation.requests.add(way)
            refusal = await self._post(endpoint, body, request.head.request)
            if refusal is not None:
                self._refused(way, refusal)
        except AdapterError as error:
            self._forget(way)
            way.break_off(error)
        if way.over and not self._local.version:
            # Its initialize has opened no session.
            self.end()

    def _refused(self, way: RequestUnderWay, refusal: LocalAnswer) -> None:
        self._forget(way)
        if way.stream is not None:
            way.break_off(
                UpstreamBroken(f"The upstream server refused the call with HTTP status {refusal.status}.")
            )
        else:
            way.answer(refusal)
        if refusal.status == _NOT_FOUND:
            self._lost(UpstreamBroken())

    async def _post(self, endpoint: HttpUpstream, body: bytes, asked: UpstreamRequest) -> LocalAnswer | None:
        return await post(endpoint, body, asked, self._address.answer_limit, self._receive)

    def _give_up(self, way: RequestUnderWay) -> None:
        """Nobody waits for a request. One that was not sent never will be; another one runs on at the server."""
        if way in self._unsent and way.method != "initialize":
            del self._unsent[way]
            self._posts[way].cancel()
            way.end()
        else:
            self._correlation.give_up(way)
            if way.over:
                self._limit_post(way)

    def _forget(self, way: RequestUnderWay) -> None:
        # Another request may have its id by now.
        if self._correlation.requests.get(way.number) is way:
            self._correlation.requests.take(way.number)

    # --- messages that need no answer -----------------------------------------------------------------------------

    async def tell(self, envelope: Envelope, head: LocalHead) -> None:
        """Send a notification or a response.

        Raises SessionUnknown, UpstreamSilent, UpstreamRefused for want of credentials, and UpstreamBroken.
        """
        self._headers = head.request.headers
        await self._told(envelope.body, head.request)

    async def _told(self, body: bytes, asked: UpstreamRequest) -> None:
        try:
            async with asyncio.timeout(self._address.patience):
                refusal = await self._post(await asyncio.shield(self._endpoint), body, asked)
        except TimeoutError:
            raise UpstreamSilent(
                f"The upstream server did not accept the message within {self._address.patience:g} s."
            ) from None
        if refusal is None:
            return
        if refusal.status == _NOT_FOUND:
            self._lost(UpstreamBroken())
            raise SessionUnknown()
        refused = UpstreamRefused if refusal.status == _UNAUTHORIZED else UpstreamBroken
        raise refused(f"The upstream server refused the message with HTTP status {refusal.status}.")

    def cancel(self, request: RequestUnderWay) -> None:
        """See ServerLine. The server may not care, so nobody waits for it."""
        self._limit_post(request)
        params = {"requestId": request.number, "reason": "Nobody waits for the answer any more."}
        asked = UpstreamRequest("POST", self._headers)
        self._start(self._cancelled(notification(CANCELLED, params), asked))

    async def _cancelled(self, body: bytes, asked: UpstreamRequest) -> None:
        try:
            await self._told(body, asked)
        except AdapterError as error:
            self._log.debug("a cancellation did not reach the server", reason=str(error))

    # --- messages of the server -----------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        """Take a message of the server's. What is none is dropped."""
        try:
            messages = messages_of(data)
        except BadJson:
            self._log.debug("dropped an event that is no message", bytes=len(data))
            return
        for message in messages:
            self._correlation.receive(message)

    def _agreed(self, opening: RequestUnderWay, message: LineMessage) -> None:
        """Take the response to ``initialize``: the client's session begins, where the server agrees."""
        version = agreed_version(message)
        if version is None:
            opening.respond(message)
            self.end()
            return
        self._local.version = version
        opening.answer(LocalAnswer(message.data, session_id=self._local.id))
        self._limit_post(opening)

    def _answered(self, way: RequestUnderWay, message: LineMessage) -> None:
        way.respond(message)
        self._limit_post(way)

    def _limit_post(self, way: RequestUnderWay) -> None:
        """Leave the POST of a request that is over little time to be accepted."""
        if way in self._posts:
            asyncio.get_running_loop().call_later(self._address.linger, self._posts[way].cancel)

    def take(self, message: LineMessage) -> None:
        """See ServerLine."""
        self._correlation.tell(self._local, message.data)

    def pause(self) -> None:
        """See ServerLine."""
        self._may_read.clear()

    def resume(self) -> None:
        """See ServerLine."""
        self._may_read.set()

    # --- reading --------------------------------------------------------------------------------------------------

    async def _read_streams(self, opening: RequestUnderWay) -> None:
        """Open the stream and read it, and those that are opened in its place, until there is no other."""
        short = 0
        lost: AdapterError = UpstreamBroken()
        try:
            again: SseStream | None = await open_stream(self._address, self._headers, self._query)
            while again is not None:
                stream = self._stream = again
                self._endpoint.set_result(self._address.http.toward(stream.target))
                lost = await self._read(stream)
                stream.close()
                lived = asyncio.get_running_loop().time() - stream.opened_at
                short = short + 1 if lived < SHORT_LIVED else 0
                again = await self._reconnected(stream, lost) if short < ATTEMPTS else None
        except StreamRefusedError as refused:
            opening.answer(refused.answer)
        except AdapterError as error:
            lost = error
        finally:
            self._lost(lost)

    async def _read(self, stream: SseStream) -> UpstreamBroken:
        """Take what comes, to the end of the stream; the failure of what was under way then."""
        try:
            for taken in itertools.count(1):
                if (event := await stream.next()) is None:
                    break
                self._take_event(event, stream)
                await self._may_read.wait()
                if taken % BURST == 0:
                    await asyncio.sleep(0)
        except UpstreamBroken as error:
            return error
        return UpstreamBroken("The upstream server ended its event stream; the call may have run.")

    def _take_event(self, event: SseEvent, stream: SseStream) -> None:
        if event.skipped:
            # It may have been the answer to any request.
            self._correlation.fail(AnswerTooLarge())
            if not self._local.version and not self._unsent:
                # Its initialize has opened no session.
                self.end()
        elif event.event == ENDPOINT and event.data is not None:
            # Without it the stream is not opened again.
            named, stream.target = stream.target, ""
            if target_of(event.data, self._address) != named:
                raise UpstreamBroken("The upstream server named a second endpoint; the call may have run.")
            stream.target = named
        elif event.event == MESSAGE and event.data:
            self._receive(event.data)

    # --- reconnecting ---------------------------------------------------------------------------------------------

    async def _reconnected(self, before: SseStream, lost: AdapterError) -> SseStream | None:
        """Open the stream again; None where the server does not go on with the session.

        It does where it names the same endpoint. A server that numbers its events sends again what was missed, so that
        calls wait for it; without numbers an answer may be lost, so each call is told now.
        """
        if self._over or not before.target:
            return None
        self._endpoint = asyncio.get_running_loop().create_future()
        if not before.last_id:
            self._interrupted(lost)
            if not self._local.version:
                # Its client was told that it has not opened, so nobody would end it.
                return None
        stream = await self._opened_again(before)
        if stream is not None and stream.target != before.target:
            stream.close()
            return None
        if stream is not None:
            self._log.info("an event stream of an upstream was opened again")
        return stream

    async def _opened_again(self, before: SseStream) -> SseStream | None:
        least = self._address.delay
        delay = least if before.retry is None else min(before.retry / 1000, LONGEST_RETRY)
        for _ in range(ATTEMPTS):
            await asyncio.sleep(max(delay, least))
            try:
                return await open_stream(self._address, self._headers, self._query, before.last_id)
            except UpstreamUnreachable:
                delay = 2 * delay
            except (AdapterError, StreamRefusedError):
                return None
        return None

    def _interrupted(self, error: AdapterError) -> None:
        """Note that answers to what was sent may be lost: every such request is told, and POSTs which are not accepted
        yet are dropped.
        """
        self._correlation.fail(error)
        for way, task in self._posts.items():
            if way.over:
                task.cancel()

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Drop the stream, which ends the session at the server, and whatever is under way."""
        self._lost(dropped())

    def _lost(self, error: AdapterError) -> None:
        """End the session, with ``error`` for what was sent. All else is answered 404, and may be sent in a new one."""
        if self._over:
            return
        self._over = True
        for way in self._unsent:
            way.break_off(SessionUnknown() if self._local.version else error)
        self._correlation.close()
        self._correlation.fail(error)
        if self._stream is not None:
            self._stream.close()
        if not self._endpoint.done():
            self._endpoint.set_exception(SessionUnknown())
            # Nobody may have waited for it.
            self._endpoint.exception()
        for task in (*self._posts.values(), *self._others):
            if task is not asyncio.current_task():
                task.cancel()
        self._local.end()


# A dual-era client takes 400 without an error code of the modern era for a legacy server, and initializes. With the
# code of an unsupported version it would go on in the modern era (MCP 2026-07-28, "Versioning").
_LEGACY_ONLY = (
    "This upstream server speaks the HTTP+SSE transport, which has legacy versions only: send initialize."
)


class SseServer:
    """A LocalServer whose sessions are streams of the server at ``address``.

    ``most`` is the limit of the streams of ``address``, so one more session is refused before any other has to go.
    """

    reads_params = False

    def __init__(self, address: SseAddress, log: FilteringBoundLogger, most: int) -> None:
        self.sessions = LocalSessions(2 * most, self._ended, BOUNDS)
        self._address = address
        self._log = log
        self._streams: dict[LocalSession, SseSession] = {}

    def __repr__(self) -> str:
        return f"<SseServer: {len(self._streams)} sessions>"

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """See LocalServer."""
        if request.head.era is Era.MODERN:
            return LocalAnswer(failure(BadRequest(_LEGACY_ONLY), request.id_bytes), BadRequest.http)
        if request.session is not None:
            return self._of(request.session).call(request)
        local = self.sessions.open("")
        session = self._streams[local] = SseSession(self._address, self._log, local)
        return session.open(request)

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """See LocalServer. Raises UpstreamBroken where the server refuses the message."""
        await self._of(session).tell(envelope, head)

    async def close(self) -> None:
        """Drop all connections. The sessions have ended before."""
        await self._address.http.close()

    def _of(self, local: LocalSession) -> SseSession:
        """The stream of a session. Raises SessionUnknown for one that ended while its batch was answered."""
        session = self._streams.get(local)
        if session is None:
            raise SessionUnknown()
        return session

    def _ended(self, local: LocalSession) -> None:
        session = self._streams.pop(local, None)
        if session is not None:
            session.end()
