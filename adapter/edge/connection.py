"""One client's HTTP/1.1 connection (RFC 9112).

RequestStream decides what the bytes mean; this protocol decides what happens: each request gets a task of its
own, one after the other, which is cancelled when the client goes away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from adapter.edge.answer import HttpAnswer
from adapter.edge.parsing import Arrival, Refusal, RequestStream
from adapter.edge.request import RESUME_BELOW, ClientGone, Request, Sendable
from adapter.edge.sending import send_file

PIPELINE_LIMIT = 8
"""Requests that may wait behind the one being answered before reading stops."""

BURST_LIMIT = 256
"""Requests that may wait because they came in one read."""

PAUSE_ABOVE = 2 * RESUME_BELOW

Handler = Callable[[Request], Awaitable[None]]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JSON = [("Content-Type", "application/json")]


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a client may take.

    ``idle``: how long a connection may lie idle, or take for a head. ``linger``: how long what still arrives
    after the last answer is taken and thrown away. ``half_closed``: how long an exchange goes on after the
    client closed its side; most that do have gone altogether, which looks the same from here (RFC 9112, 9.6).
    """

    idle: float = 75.0
    linger: float = 2.0
    half_closed: float = 0.5


PATIENCE = Patience()


class ClientConnection(asyncio.Protocol):
    """``handler`` answers each request. The connection is in ``connections`` until its last task has ended."""

    def __init__(
        self, handler: Handler, connections: set[ClientConnection], patience: Patience = PATIENCE
    ) -> None:
        self._handler = handler
        self._connections = connections
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._requests = RequestStream(self._arrive, self._resume_reading)
        self._transport: asyncio.Transport
        self._peer: str | None = None
        self._waiting: deque[tuple[Request, HttpAnswer]] = deque()
        self._answer: HttpAnswer | None = None
        self.task: asyncio.Task[None] | None = None
        self._refusal: Refusal | None = None
        self._paused = False
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._quiet_since = 0.0
        self._lost = False
        self._half_closed = False
        self._deaf = False
        self._mute = False

    def __repr__(self) -> str:
        return f"<ClientConnection: {'busy' if self._answer else 'idle'}, {len(self._waiting)} waiting>"

    # --- what the transport says ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self._peer = address[0] if address else None
        self._connections.add(self)
        self._quiet_since = self._loop.time()
        self._expect(self._patience.idle, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio says how it is called
        self._lost = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._requests.fail(ClientGone("the client has gone"))
        self._waiting.clear()
        self.resume_writing()
        if self.task is None:
            self._connections.discard(self)
        else:
            self.task.cancel()
            self.task.add_done_callback(lambda _: self._connections.discard(self))

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        try:
            self._requests.feed(data)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        self._deaf = self._requests.ended
        crowded = len(self._waiting) >= PIPELINE_LIMIT or self._requests.unread > PAUSE_ABOVE
        if crowded and not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        if self._answer is None or self._mute:
            return False
        if self._requests.incomplete:
            self._transport.abort()
            return False
        self._half_closed = self._deaf = True
        self._expect(self._patience.half_closed, self._transport.abort)
        return True

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- exchanges ------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        bare, body = arrival.method == "HEAD", arrival.body
        answer = HttpAnswer(self, keep=arrival.keep, modern=arrival.modern, bare=bare, body=body)
        if arrival.expects_continue:
            arrival.body.wanted = lambda: self._say_continue(answer)
        request = arrival.request(answer, self._peer)
        if self._answer is None:
            self._start(request, answer)
        elif len(self._waiting) < BURST_LIMIT:
            self._waiting.append((request, answer))
        else:
            raise Refusal(429, "too many requests at once")

    def _start(self, request: Request, answer: HttpAnswer) -> None:
        self._answer = answer
        self.task = self._loop.create_task(self._run(request, answer))

    async def _run(self, request: Request, answer: HttpAnswer) -> None:
        try:
            await self._handler(request)
        except ClientGone:
            answer.abort()
        except asyncio.CancelledError:
            # A request that turned out to be broken is cancelled too; its connection still carries the refusal.
            if self._answer is answer:
                answer.abort()
            raise
        except Exception as error:
            self._report("a handler failed", error)
            self._fail(answer)
        else:
            if not answer.complete and answer.keep:
                self._report("a handler left its answer unfinished")
                self._fail(answer)
        self._next(request, answer)

    def _report(self, message: str, error: Exception | None = None) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error, "protocol": self})

    def _fail(self, answer: HttpAnswer) -> None:
        """Say so where nothing was said yet; else break off, so that nobody takes the answer for whole."""
        if answer.status is not None:
            answer.abort()
            return
        answer.keep = False
        answer.send(500, _JSON, b'{"detail":"the request failed unexpectedly"}')

    def _next(self, request: Request, answer: HttpAnswer) -> None:
        self.task = self._answer = None
        self._quiet_since = self._loop.time()
        if self._lost:
            return
        if not answer.keep or not request.body.complete:
            self._leave(arriving=not request.body.complete or self._deaf)
        elif self._waiting:
            self._start(*self._waiting.popleft())
            self._resume_reading()
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        elif self._deaf:
            self._leave(arriving=False)

    # --- refusing and leaving -------------------------------------------------------------------------------

    def _refuse(self, refusal: Refusal) -> None:
        """Read no more: where the next request begins is not known. What came before is still answered."""
        self._deaf = True
        self._refusal = refusal
        if self._requests.incomplete:
            if self._waiting:
                self._waiting.pop()
            elif self._answer is not None and self._answer.status is not None:
                self._transport.abort()
                return
            elif self.task is not None:
                self._answer = None
                self.task.cancel()
        if self._answer is None:
            self._send_refusal(refusal)

    def _send_refusal(self, refusal: Refusal) -> None:
        body = b'{"detail":"%s"}' % refusal.why.encode()
        HttpAnswer(self, keep=False).send(refusal.status, _JSON, body)
        self._leave(arriving=True)

    def _leave(self, *, arriving: bool) -> None:
        """Close after the answer.

        While something is still ``arriving`` a plain close would be a reset to its sender, which would then
        never read the answer; so it is thrown away for a moment (RFC 9112, 9.6).
        """
        self._deaf = True
        if not arriving or self._half_closed or self._transport.is_closing():
            self._transport.close()
            return
        self._mute = True
        self._transport.write_eof()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._expect(self._patience.linger, self._transport.abort)

    def _resume_reading(self) -> None:
        if self._paused and len(self._waiting) < PIPELINE_LIMIT and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _say_continue(self, answer: HttpAnswer) -> None:
        if answer.status is None:
            self.write(_CONTINUE)

    def _expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """The one deadline of this connection; a new one takes the place of the last."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, otherwise)

    def _check_idle(self) -> None:
        """Close when nothing was asked for a while, or a head does not come to its end."""
        wait = self._patience.idle
        if self._answer is None:
            wait -= self._loop.time() - self._quiet_since
            if wait <= 0 and self._transport.is_closing():
                # The last answer was not taken either.
                self._transport.abort()
                return
            if wait <= 0:
                self._transport.close()
                wait = self._patience.linger
        self._expect(wait, self._check_idle)

    # --- for answers and the listener -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not (self._lost or self._mute or self._transport.is_closing()):
            self._transport.write(data)

    def soon(self, act: Callable[[], None]) -> None:
        self._loop.call_soon(act)

    @property
    def full(self) -> bool:
        """Whether what is written now would only wait here."""
        return self._write_paused or self._lost

    async def drained(self) -> None:
        """Wait until the client takes more. Raises ClientGone."""
        if self._write_paused and not self._lost:
            self._writable = self._loop.create_future()
            await self._writable
        if self._lost:
            raise ClientGone("the client has gone")

    async def send_file(self, file: Sendable, offset: int, length: int) -> None:
        await send_file(self._transport, self.drained, file, offset, length)

    def abort(self) -> None:
        self._transport.abort()

    @property
    def leaving(self) -> bool:
        """True while the last answer may still be on its way."""
        return self.task is None and (self._mute or self._transport.is_closing())

    def retire(self) -> None:
        """Close now if idle, else after the answer that is being given."""
        if self._answer is None:
            self._transport.close()
        else:
            self._answer.keep = False
