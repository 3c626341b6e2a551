"""One session with an SSE server: its stream, the endpoint that was named on it, and what is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

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
from adapter.upstream.local.correlation import Answered, Correlation, as_it_came
from adapter.upstream.local.messages import LocalAnswer
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession
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
from adapter.wire.envelope import Envelope, RpcResponse
from adapter.wire.sse import SseEvent

ATTEMPTS = 3
"""Attempts to open a stream again whose server cannot be reached."""

LONGEST_RETRY = 10.0
"""Seconds of a server's ``retry:`` that are waited at most."""

SHORT_LIVED = 5.0
"""Seconds; so many streams in a row as there are attempts, each shorter than this, end the session."""

_NOT_FOUND = 404


class ClientSessions(Protocol):
    """The sessions of clients, each of which stands before a stream."""

    def opened(self, stream: SseSession, version: str, capabilities: Mapping[str, Any]) -> LocalSession:
        """Open a client's session with what was negotiated."""

    def ended(self, stream: SseSession) -> None:
        """A stream is over, and with it the client's session. Called once for each."""


class SseSession:
    """Sends a client's messages and brings it those of the server."""

    def __init__(
        self,
        address: SseAddress,
        terms: SseTerms,
        log: FilteringBoundLogger,
        sessions: ClientSessions,
    ) -> None:
        self.local: LocalSession | None = None
        self._address = address
        self._terms = terms
        self._log = log
        self._sessions = sessions
        self._correlation = Correlation(log)
        self._asked = Asked((), "")
        self._stream: SseStream | None = None
        self._endpoint: asyncio.Future[HttpUpstream] = asyncio.get_running_loop().create_future()
        self._over = False
        self._unsent: dict[PendingReply, bytes] = {}
        self._posts: dict[PendingReply, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "over" if self._over else "up" if self._endpoint.done() else "connecting"
        return f"<SseSession: {state}, {len(self._correlation)} under way>"

    # --- what the client sends ------------------------------------------------------------------------------------

    def open(self, request: LocalRequest) -> PendingReply:
        """Open the stream, and send the ``initialize`` that this is."""
        reply = PendingReply(self.end)
        self._asked = Asked(request.head.request.headers, request.head.request.query)
        self._unsent[reply] = request.id_bytes
        self._posts[reply] = self._start(reply, self._opened(request, reply))
        return reply

    def call(self, request: LocalRequest) -> PendingReply:
        """Send a request. While the stream is opened again it waits; a session that is lost answers it with 404."""
        reply = PendingReply(lambda: self._give_up(request, reply))
        self._asked = self._asked._replace(headers=request.head.request.headers)
        self._unsent[reply] = request.id_bytes
        self._posts[reply] = self._start(reply, self._sent(request, reply, as_it_came))
        return reply

    async def tell(self, envelope: Envelope, head: LocalHead) -> None:
        """Send a notification or a response. Raises SessionUnknown, UpstreamSilent and UpstreamBroken."""
        self._asked = self._asked._replace(headers=head.request.headers)
        try:
            async with asyncio.timeout(self._terms.patience):
                endpoint = await self._when_up()
                refusal = await self._post(endpoint, envelope.body, head.request)
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

    def end(self) -> None:
        """Drop the stream, which ends the session at the server, and whatever is under way."""
        self._lose(dropped())

    async def closed(self) -> None:
        """Wait until nothing of an ended session runs any more."""
        tasks = [*self._posts.values(), *([self._listening] if self._listening else ())]
        if tasks:
            await asyncio.wait(tasks)

    async def _opened(self, request: LocalRequest, reply: PendingReply) -> None:
        try:
            stream = await open_stream(self._address, self._asked, self._terms)
        except StreamRefusedError as refused:
            reply.answer(refused.answer)
            self.end()
            return
        except AdapterError as error:
            reply.fail(error, request.id_bytes)
            self.end()
            return
        self._follow(stream)
        self._listening = asyncio.create_task(self._listen(stream))
        await self._sent(request, reply, partial(self._agreed, request))
        if self.local is None and reply.over:
            self.end()

    async def _sent(self, request: LocalRequest, reply: PendingReply, answered: Answered) -> None:
        """Send one request, once. Its reply is filled from the stream, or from the answer to the POST."""
        number, body = request.envelope.id, request.envelope.body
        assert number is not None, "a request has an id"
        try:
            endpoint = await self._when_up()
            self._unsent.pop(reply, None)
            self._correlation.expect(request, reply, self._lingering(reply, answered))
            refusal = await self._post(endpoint, body, request.head.request)
        except AdapterError as error:
            self._correlation.forget(number, reply)
            reply.fail(error, request.id_bytes)
            return
        if refusal is None:
            return
        self._correlation.forget(number, reply)
        if reply.begun:
            status = f"The upstream server refused the request with HTTP status {refusal.status}."
            reply.fail(UpstreamBroken(status), request.id_bytes)
        else:
            reply.answer(refusal)
        if refusal.status == _NOT_FOUND:
            self._lose(UpstreamBroken())

    async def _post(self, endpoint: HttpUpstream, body: bytes, asked: UpstreamRequest) -> LocalAnswer | None:
        return await post(endpoint, body, asked, self._terms.answer_limit, self._correlation.take)

    def _agreed(self, request: LocalRequest, response: RpcResponse, data: bytes) -> LocalAnswer:
        """Open the client's session where the server has agreed to ``initialize``."""
        result = response.message.get("result")
        if not isinstance(result, dict):
            # Not here: the reply gets this answer first.
            asyncio.get_running_loop().call_soon(self.end)
            return LocalAnswer(data)
        self.local = self._sessions.opened(self, _text_in(result, "protocolVersion"), request.capabilities)
        self._correlation.opened(self.local)
        return LocalAnswer(data, session=self.local)

    def _lingering(self, reply: PendingReply, answered: Answered) -> Answered:
        """As ``answered``; a POST that has not been accepted by then gets little time for it."""

        def settle(response: RpcResponse, data: bytes) -> LocalAnswer:
            task = self._posts.get(reply)
            if task is not None:
                asyncio.get_running_loop().call_later(self._terms.linger, task.cancel)
            return answered(response, data)

        return settle

    def _give_up(self, request: LocalRequest, reply: PendingReply) -> None:
        """Drop the POST of a request that nobody waits for. What has reached the server runs on there."""
        number = request.envelope.id
        assert number is not None, "a request has an id"
        self._unsent.pop(reply, None)
        self._correlation.forget(number, reply)
        if reply in self._posts:
            self._posts[reply].cancel()
        reply.end()

    def _start(self, reply: PendingReply, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._posts.pop(reply, None))
        return task

    async def _when_up(self) -> HttpUpstream:
        """The endpoint, as soon as the stream is open. Raises SessionUnknown where it will not be."""
        if self._over:
            raise SessionUnknown()
        return await asyncio.shield(self._endpoint)

    # --- what the server sends ------------------------------------------------------------------------------------

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
                await self._take(event, stream)
        except UpstreamBroken as error:
            return error
        return UpstreamBroken("The upstream server ended its event stream; the call may have run.")

    async def _take(self, event: SseEvent, stream: SseStream) -> None:
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
            await self._correlation.take(event.data)

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
        for reply, task in self._posts.items():
            if reply.over and task is not asyncio.current_task():
                task.cancel()

    def _lose(self, error: AdapterError) -> None:
        """End the session. What was sent fails with ``error``, what was not is answered 404 and may be sent again."""
        if self._over:
            return
        self._over = True
        for reply, id_bytes in list(self._unsent.items()):
            reply.fail(error if self.local is None else SessionUnknown(), id_bytes)
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
        self._sessions.ended(self)


def _text_in(message: dict[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""
