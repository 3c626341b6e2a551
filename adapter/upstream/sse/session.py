"""One session with an SSE server: a client's requests, sent by POST and answered on the line that comes back.

An SSE server behind a LocalUpstream: its sessions, each with a stream of its own.
"""

from __future__ import annotations

import asyncio
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
)
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.correlation import BOUNDS, Correlation, RequestUnderWay
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, notification
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.port import UpstreamRequest, dropped
from adapter.upstream.sse.stream import SseAddress, SseLine, StreamRefusedError, post
from adapter.wire.envelope import Envelope, failure
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, agreed_version, messages_of
from adapter.wire.shared_ids import CANCELLED

_NOT_FOUND = 404
_UNAUTHORIZED = 401


class SseSession:
    """Sends the messages of a client's session, and brings it those of the server. It is over when ``local`` ends.

    A request is sent once: what was sent when the line is lost fails as one that may have run.
    """

    def __init__(self, address: SseAddress, log: FilteringBoundLogger, local: LocalSession) -> None:
        self._address = address
        self._log = log
        self._local = local
        self._line = SseLine(address, log, self)
        self._correlation = Correlation(self)
        self._over = False
        self._unsent: dict[RequestUnderWay, None] = {}
        self._posts: dict[RequestUnderWay, asyncio.Task[None]] = {}
        self._cancellations: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        state = "over" if self._over else "open"
        return f"<SseSession: {state}, {len(self._correlation.requests)} under way>"

    # --- requests -------------------------------------------------------------------------------------------------

    def open(self, request: LocalRequest) -> PendingReply:
        """Open the stream, and send the ``initialize`` that this is."""
        way = RequestUnderWay(request, self._local, self._give_up, self._agreed)
        return self._start(way, self._opened(way, request))

    def call(self, request: LocalRequest) -> PendingReply:
        """Send a request. While the stream is opened again it waits; a session that is lost answers it with 404."""
        self._line.headers = request.head.request.headers
        way = RequestUnderWay(request, self._local, self._give_up, self._answered)
        return self._start(way, self._sent(way, request))

    async def _opened(self, way: RequestUnderWay, request: LocalRequest) -> None:
        try:
            await self._line.open(request.head.request)
        except StreamRefusedError as refused:
            way.answer(refused.answer)
            self.end()
        except AdapterError as error:
            self.lost(error)
        else:
            await self._sent(way, request)
            if way.over and not self._local.version:
                self.end()

    async def _sent(self, way: RequestUnderWay, request: LocalRequest) -> None:
        """Send one request. Its reply is filled from the stream, or from the answer to the POST."""
        try:
            endpoint = await self._line.endpoint()
            self._unsent.pop(way, None)
            body = self._correlation.numbered(way, request.envelope)
            self._correlation.requests.add(way)
            refusal = await self._post(endpoint, body, request.head.request)
            if refusal is not None:
                self._refused(way, refusal)
        except AdapterError as error:
            self._forget(way)
            way.break_off(error)

    def _refused(self, way: RequestUnderWay, refusal: LocalAnswer) -> None:
        self._forget(way)
        if way.stream is not None:
            way.break_off(
                UpstreamBroken(f"The upstream server refused the call with HTTP status {refusal.status}.")
            )
        else:
            way.answer(refusal)
        if refusal.status == _NOT_FOUND:
            self.lost(UpstreamBroken())

    async def _post(self, endpoint: HttpUpstream, body: bytes, asked: UpstreamRequest) -> LocalAnswer | None:
        return await post(endpoint, body, asked, self._address.answer_limit, self.receive)

    def _start(self, way: RequestUnderWay, work: Coroutine[Any, Any, None]) -> RequestUnderWay:
        self._unsent[way] = None
        task = self._posts[way] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._posts.pop(way, None))
        return way

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
        self._line.headers = head.request.headers
        await self._told(envelope.body, head.request)

    async def _told(self, body: bytes, asked: UpstreamRequest) -> None:
        try:
            async with asyncio.timeout(self._address.patience):
                refusal = await self._post(await self._line.endpoint(), body, asked)
        except TimeoutError:
            raise UpstreamSilent(
                f"The upstream server did not accept the message within {self._address.patience:g} s."
            ) from None
        if refusal is None:
            return
        if refusal.status == _NOT_FOUND:
            self.lost(UpstreamBroken())
            raise SessionUnknown()
        refused = UpstreamRefused if refusal.status == _UNAUTHORIZED else UpstreamBroken
        raise refused(f"The upstream server refused the message with HTTP status {refusal.status}.")

    def cancel(self, request: RequestUnderWay) -> None:
        """See ServerLine. The server may not care, so nobody waits for it."""
        self._limit_post(request)
        params = {"requestId": request.number, "reason": "Nobody waits for the answer any more."}
        asked = UpstreamRequest("POST", self._line.headers)
        task = asyncio.create_task(self._cancelled(notification(CANCELLED, params), asked))
        self._cancellations.add(task)
        task.add_done_callback(self._cancellations.discard)

    async def _cancelled(self, body: bytes, asked: UpstreamRequest) -> None:
        try:
            await self._told(body, asked)
        except AdapterError as error:
            self._log.debug("a cancellation did not reach the server", reason=str(error))

    # --- messages of the server -----------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """See LineOwner. What is no message is dropped."""
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
        self._line.pause()

    def resume(self) -> None:
        """See ServerLine."""
        self._line.resume()

    # --- the end --------------------------------------------------------------------------------------------------

    def overflowed(self) -> None:
        """See LineOwner."""
        self._correlation.fail(AnswerTooLarge())

    def interrupted(self, error: AdapterError) -> None:
        """See LineOwner. Every request that was sent is told, and POSTs which are not accepted yet are dropped."""
        self._correlation.fail(error)
        for way, task in self._posts.items():
            if way.over and task is not asyncio.current_task():
                task.cancel()

    def end(self) -> None:
        """Drop the line, which ends the session at the server, and whatever is under way."""
        self.lost(dropped())

    def lost(self, error: AdapterError) -> None:
        """See LineOwner. What was not sent is answered 404, and may be sent in a new session."""
        if self._over:
            return
        self._over = True
        for way in self._unsent:
            way.break_off(SessionUnknown() if self._local.version else error)
        self._correlation.close()
        self._correlation.fail(error)
        self._line.close()
        for task in (*self._posts.values(), *self._cancellations):
            if task is not asyncio.current_task():
                task.cancel()
        self._local.end()

    async def closed(self) -> None:
        """Wait until nothing of an ended session runs any more."""
        if tasks := (*self._posts.values(), *self._cancellations):
            await asyncio.wait(tasks)
        await self._line.closed()


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
        """End every session, and drop all connections."""
        streams = list(self._streams.values())
        for session in streams:
            session.end()
        await asyncio.gather(*(session.closed() for session in streams))
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
