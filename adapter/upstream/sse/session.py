"""One session with an SSE server: its stream, the endpoint that was named on it, and what is under way."""

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
    UpstreamSilent,
    UpstreamUnreachable,
)
from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.correlation import Correlation
from adapter.upstream.local.handshake import agreed_version
from adapter.upstream.local.messages import LocalAnswer, notification
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import CallEvents, LocalSession
from adapter.upstream.local.under_way import RequestUnderWay
from adapter.upstream.port import UpstreamRequest, dropped
from adapter.upstream.sse.posts import post
from adapter.upstream.sse.stream import (
    ENDPOINT,
    MESSAGE,
    Asked,
    SseAddress,
    SseStream,
    SseTerms,
    StreamRefusedError,
    open_stream,
    target_of,
)
from adapter.wire.envelope import Envelope
from adapter.wire.line_messages import LineMessage, messages_of
from adapter.wire.shared_ids import CANCELLED
from adapter.wire.sse import SseEvent, encode

ATTEMPTS = 3
"""Attempts to open a stream again whose server cannot be reached."""

LONGEST_RETRY = 10.0
"""Seconds of a server's ``retry:`` that are waited at most."""

SHORT_LIVED = 5.0
"""Seconds; so many streams in a row as there are attempts, each shorter than this, end the session."""

_NOT_FOUND = 404


class SseSession:
    """Sends the messages of a client's session, and brings it those of the server. It is over when ``local`` ends.

    A request is sent once: what was sent when the stream is lost fails as one that may have run.
    """

    def __init__(
        self, address: SseAddress, terms: SseTerms, log: FilteringBoundLogger, local: LocalSession
    ) -> None:
        self._address = address
        self._terms = terms
        self._log = log
        self._local = local
        self._correlation = Correlation(self)
        self._asked = Asked((), "")
        self._stream: SseStream | None = None
        self._endpoint: asyncio.Future[HttpUpstream] = asyncio.get_running_loop().create_future()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._over = False
        self._unsent: dict[RequestUnderWay, None] = {}
        self._posts: dict[RequestUnderWay, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "over" if self._over else "up" if self._endpoint.done() else "connecting"
        return f"<SseSession: {state}, {len(self._correlation.requests)} under way>"

    # --- what the client sends ------------------------------------------------------------------------------------

    def open(self, request: LocalRequest) -> PendingReply:
        """Open the stream, and send the ``initialize`` that this is."""
        self._asked = Asked(request.head.request.headers, request.head.request.query)
        opening = RequestUnderWay(
            _number(request), request.id_bytes, request.head.era, PendingReply(self._local.end), self._local
        )
        opening.taker = self._agreed
        self._unsent[opening] = None
        self._start(opening, self._opened(opening, request))
        return opening.reply

    def call(self, request: LocalRequest) -> PendingReply:
        """Send a request. While the stream is opened again it waits; a session that is lost answers it with 404.

        Raises BadRequest where a request of the same id is under way: one stream could not tell their answers apart.
        """
        number = _number(request)
        if number in self._correlation.requests or any(each.number == number for each in self._unsent):
            raise BadRequest("A request with this id is under way in this session already.")
        self._asked = self._asked._replace(headers=request.head.request.headers)
        events = CallEvents(self._local) if request.head.streams else None
        reply = PendingReply(lambda: self._give_up(way), events=events or encode)
        way = RequestUnderWay(
            number, request.id_bytes, request.head.era, reply, self._local, request.progress_token
        )
        way.streams, way.events, way.taker = request.head.streams, events, self._answered
        self._unsent[way] = None
        self._start(way, self._sent(way, request))
        return reply

    async def tell(self, envelope: Envelope, head: LocalHead) -> None:
        """Send a notification or a response. Raises SessionUnknown, UpstreamSilent and UpstreamBroken."""
        self._asked = self._asked._replace(headers=head.request.headers)
        await self._told(envelope.body, head.request)

    def end(self) -> None:
        """Drop the stream, which ends the session at the server, and whatever is under way."""
        self._lose(dropped())

    async def closed(self) -> None:
        """Wait until nothing of an ended session runs any more."""
        tasks = [*self._posts.values(), *([self._listening] if self._listening else ())]
        if tasks:
            await asyncio.wait(tasks)

    async def _told(self, body: bytes, asked: UpstreamRequest) -> None:
        try:
            async with asyncio.timeout(self._terms.patience):
                refusal = await self._post(await self._when_up(), body, asked)
        except TimeoutError:
            raise UpstreamSilent(
                f"The upstream server did not accept the message within {self._terms.patience:g} s."
            ) from None
        if refusal is None:
            return
        if refusal.status == _NOT_FOUND:
            self._lose(UpstreamBroken())
            raise SessionUnknown()
        raise UpstreamBroken(f"The upstream server refused the message with HTTP status {refusal.status}.")

    async def _opened(self, opening: RequestUnderWay, request: LocalRequest) -> None:
        try:
            stream = await open_stream(self._address, self._asked, self._terms)
        except StreamRefusedError as refused:
            opening.reply.answer(refused.answer)
            self.end()
        except AdapterError as error:
            self._lose(error)
        else:
            self._follow(stream)
            self._listening = asyncio.create_task(self._listen(stream))
            await self._sent(opening, request)
            if opening.reply.over and not self._local.version:
                self.end()

    async def _sent(self, way: RequestUnderWay, request: LocalRequest) -> None:
        """Send one request. Its reply is filled from the stream, or from the answer to the POST."""
        try:
            endpoint = await self._when_up()
            self._unsent.pop(way, None)
            self._correlation.requests.add(way)
            refusal = await self._post(endpoint, request.envelope.body, request.head.request)
            if refusal is not None:
                self._refused(way, refusal)
        except AdapterError as error:
            self._forget(way)
            way.fail(error)

    def _refused(self, way: RequestUnderWay, refusal: LocalAnswer) -> None:
        self._forget(way)
        if way.reply.stream is not None:
            way.fail(
                UpstreamBroken(f"The upstream server refused the call with HTTP status {refusal.status}.")
            )
        else:
            way.reply.answer(refusal)
        if refusal.status == _NOT_FOUND:
            self._lose(UpstreamBroken())

    async def _post(self, endpoint: HttpUpstream, body: bytes, asked: UpstreamRequest) -> LocalAnswer | None:
        return await post(endpoint, body, asked, self._terms.answer_limit, self._receive)

    def _start(self, way: RequestUnderWay, work: Coroutine[Any, Any, None]) -> None:
        task = self._posts[way] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._posts.pop(way, None))

    async def _when_up(self) -> HttpUpstream:
        """The endpoint, as soon as the stream is open. Raises SessionUnknown where it will not be."""
        if self._over:
            raise SessionUnknown()
        return await asyncio.shield(self._endpoint)

    def _give_up(self, way: RequestUnderWay) -> None:
        """Nobody waits for a request. One that was not sent never will be; another one runs on at the server."""
        if way in self._unsent:
            del self._unsent[way]
            self._posts[way].cancel()
            way.reply.end()
        else:
            self._correlation.give_up(way)

    def _forget(self, way: RequestUnderWay) -> None:
        # Another request may have its id by now.
        if self._correlation.requests.get(way.number) is way:
            self._correlation.requests.take(way.number)

    # --- what the server answers ----------------------------------------------------------------------------------

    def _agreed(self, opening: RequestUnderWay, message: LineMessage) -> None:
        """Take the response to ``initialize``: the client's session begins, where the server agrees."""
        version = agreed_version(message)
        if version is None:
            opening.answer(message)
            self.end()
            return
        self._local.version = version
        opening.reply.answer(LocalAnswer(message.data, session=self._local))
        self._limit_post(opening)

    def _answered(self, way: RequestUnderWay, message: LineMessage) -> None:
        way.answer(message)
        self._limit_post(way)

    def _limit_post(self, way: RequestUnderWay) -> None:
        """Leave the POST of an answered request little time to be accepted."""
        if way in self._posts:
            asyncio.get_running_loop().call_later(self._terms.linger, self._posts[way].cancel)

    def pause(self) -> None:
        """See ServerLine."""
        self._may_read.clear()

    def resume(self) -> None:
        """See ServerLine."""
        self._may_read.set()

    def cancel(self, request: RequestUnderWay) -> None:
        """See ServerLine. The server may not care, so nobody waits for it."""
        params = {"requestId": request.number, "reason": "Nobody waits for the answer any more."}
        asked = UpstreamRequest("POST", self._asked.headers)
        way = RequestUnderWay(request.number, request.id_bytes, request.era, request.reply)
        self._start(way, self._cancelled(notification(CANCELLED, params), asked))

    async def _cancelled(self, body: bytes, asked: UpstreamRequest) -> None:
        try:
            await self._told(body, asked)
        except AdapterError as error:
            self._log.debug("a cancellation did not reach the server", reason=str(error))

    def take(self, message: LineMessage) -> None:
        """See ServerLine."""
        self._correlation.tell(self._local, message.data)

    # --- the stream -----------------------------------------------------------------------------------------------

    def _follow(self, stream: SseStream) -> None:
        self._stream = stream
        self._endpoint.set_result(self._address.http.toward(stream.target))

    async def _listen(self, stream: SseStream) -> None:
        """Read the stream, and those that are opened in its place, until the session is over."""
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
            self._lose(lost)

    async def _read(self, stream: SseStream) -> UpstreamBroken:
        """Take what comes, to the end of the stream; the failure of what was under way then."""
        try:
            while (event := await stream.next()) is not None:
                self._take_event(event, stream)
                await self._may_read.wait()
        except UpstreamBroken as error:
            return error
        return UpstreamBroken("The upstream server ended its event stream; the call may have run.")

    def _take_event(self, event: SseEvent, stream: SseStream) -> None:
        if event.skipped:
            # Its id is in what was not kept, so it may have been the answer of any of them.
            self._correlation.fail(AnswerTooLarge())
        elif event.event == ENDPOINT and event.data is not None:
            # Without it the stream is not opened again.
            named, stream.target = stream.target, ""
            if target_of(event.data, self._address) != named:
                raise UpstreamBroken("The upstream server named a second endpoint; the call may have run.")
            stream.target = named
        elif event.event == MESSAGE and event.data:
            self._receive(event.data)

    def _receive(self, data: bytes) -> None:
        try:
            messages = messages_of(data)
        except BadJson:
            self._log.debug("dropped an event that is no message", bytes=len(data))
            return
        for message in messages:
            self._correlation.receive(message)

    async def _reconnected(self, before: SseStream, lost: AdapterError) -> SseStream | None:
        """Open the stream again; None where the server does not go on with the session.

        It does where it names the same endpoint. A server that numbers its events sends again what was missed, so that
        calls wait for it; without numbers an answer may be lost, so each call is told now.
        """
        if self._over or not before.target:
            return None
        self._endpoint = asyncio.get_running_loop().create_future()
        if not before.last_id:
            self._fail(lost)
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
        least = self._terms.delay
        delay = least if before.retry is None else min(before.retry / 1000, LONGEST_RETRY)
        for _ in range(ATTEMPTS):
            await asyncio.sleep(max(delay, least))
            try:
                return await open_stream(self._address, self._asked, self._terms, before.last_id)
            except UpstreamUnreachable:
                delay = 2 * delay
            except (AdapterError, StreamRefusedError):
                return None
        return None

    # --- the end --------------------------------------------------------------------------------------------------

    def _fail(self, error: AdapterError) -> None:
        """Tell every request that was sent, and drop the POSTs which are not accepted yet."""
        self._correlation.fail(error)
        for way, task in self._posts.items():
            if way.reply.over and task is not asyncio.current_task():
                task.cancel()

    def _lose(self, error: AdapterError) -> None:
        """End the session. What was sent fails with ``error``, what was not is answered 404 and may be sent again."""
        if self._over:
            return
        self._over = True
        for way in self._unsent:
            way.fail(SessionUnknown() if self._local.version else error)
        self._correlation.close()
        self._fail(error)
        if self._stream is not None:
            self._stream.close()
        if not self._endpoint.done():
            self._endpoint.set_exception(SessionUnknown())
            # Nobody may have waited for it.
            self._endpoint.exception()
        current = asyncio.current_task()
        for task in (*self._posts.values(), self._listening):
            if task is not None and task is not current:
                task.cancel()
        self._local.end()


def _number(request: LocalRequest) -> str | int | float:
    assert request.envelope.id is not None, "a request has an id"
    return request.envelope.id
