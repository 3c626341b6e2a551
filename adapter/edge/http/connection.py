"""One client's HTTP/1.1 connection (RFC 9112).

RequestStream decides what the bytes mean; this protocol decides what happens: each request gets a task of its
own, one after the other, which is cancelled when the client goes away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from adapter.edge.http.bodies import LARGE, Body, BodyLimits, BodySocket, ClientGone, keep_freed_memory
from adapter.edge.http.limits import (
    AT_ONCE,
    ConnectionLimit,
    ConnectionTimers,
    Handler,
    Patience,
    has_arrived,
)
from adapter.edge.http.parser import Refusal, RequestStream
from adapter.edge.http.request import Request, RequestHead, Sendable
from adapter.edge.http.response import HttpAnswer, send_file
from adapter.errors import ConnectionsTaken
from adapter.rules.access.host_and_origin_check import NOSNIFF
from adapter.upstream.timeouts import scarce

PIPELINE_LIMIT = 8
"""Requests that may wait behind the one being answered before reading stops."""

BURST_LIMIT = 256
"""Requests that may wait because they came in one read."""

LONGEST_RESERVED_IDLE = 5.0
"""Seconds a reserved connection may lie idle, or take for a head: a health check asks at once."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JSON = [("Content-Type", "application/json")]
_RETRY_SOON = ("Retry-After", "1")
_GONE = partial(ClientGone, "the client has gone")


class ClientConnection(asyncio.Protocol):
    """Answers requests with the handler of its place, which it keeps until its last task has ended."""

    def __init__(self, places: ConnectionLimit, patience: Patience, terms: BodyLimits) -> None:
        self._places = places
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._requests = RequestStream(self._arrive, self._resume_reading, terms, places.heads)
        self._handler: Handler
        self._once = False
        self._transport: asyncio.Transport
        self._peer: str | None = None
        self.scarce = False
        self._waiting: deque[tuple[Request, HttpAnswer]] = deque()
        self._answer: HttpAnswer | None = None
        self.task: asyncio.Task[None] | None = None
        self._refusal: Refusal | None = None
        self.paused = False
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False
        self._timers: ConnectionTimers | None = None
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
        sock = transport.get_extra_info("socket")
        # With one more for a stream of this client's at an upstream, which would be refused in its place.
        self.scarce = sock is not None and scarce(sock.fileno() + 1, 2)
        place = self._places.take(self)
        if place is None:
            self._turn_away()
            return
        self._handler, self._once = place
        if self._once:
            idle = min(self._patience.idle, LONGEST_RESERVED_IDLE)
            self._patience = replace(self._patience, idle=idle)
        self._timers = ConnectionTimers(self, self._requests, self._transport, self._patience)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio says how it is called
        self._lost = True
        if self._timers is not None:
            self._timers.cancel()
            self._timers = None
        self._requests.close(_GONE)
        self._waiting.clear()
        self.resume_writing()
        if self.task is None:
            self._places.leave(self)
        else:
            self.task.add_done_callback(self._let_go)
            self._places.cancel(self.task)

    def _let_go(self, _: object) -> None:
        """Forget the last task, which has ended, and its answer: both refer to this connection."""
        self.task = self._answer = None
        self._places.leave(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        requests = self._requests
        try:
            if requests.feed(data) and not self._waiting:
                return
        except Refusal as refusal:
            self._refuse(refusal)
            return
        self._deaf = requests.ended
        if requests.in_head and self._timers is not None:
            self._timers.watch_head()
        crowded = len(self._waiting) >= PIPELINE_LIMIT
        # A body that came whole, and small, with one read costs nothing here.
        if requests.body is not None or self._waiting:
            crowded = self._count_bodies() or crowded
        if crowded and not self.paused and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()
            if self._timers is not None:
                self._timers.watch_presence()

    def _count_bodies(self) -> bool:
        """Count the bodies that are not whole yet or wait for their turn. Returns True when reading should stop."""
        for request, _ in self._waiting:
            request.body.count()
        body = self._requests.body
        if body is None:
            return False
        body.count()
        if body.overfull:
            body.refuse()
        return body.crowded

    def eof_received(self) -> bool:
        if self._answer is None or self._mute:
            return False
        if self._requests.body is not None:
            self._transport.abort()
            return False
        self._half_closed = self._deaf = True
        self._expect(self._patience.half_closed, self._transport.abort)
        return True

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._timers is not None:
            self._timers.drained()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- exchanges ------------------------------------------------------------------------------------------

    def _arrive(self, head: RequestHead, body: Body) -> None:
        body.unwanted = head.bodiless
        answer = HttpAnswer(self, head.keep and not self._once, head.modern, head.method == "HEAD", body)
        if head.expects_continue:
            body.wanted = lambda: self._say_continue(answer)
        if body.announced is not None and body.announced >= LARGE:
            body.open_socket = self._open_socket
            keep_freed_memory()
        request = Request(head.method, head.target, head.path, head.fields, body, answer, self._peer)
        if self._answer is None:
            self._start(request, answer)
        elif len(self._waiting) < BURST_LIMIT:
            self._waiting.append((request, answer))
        else:
            raise Refusal(429, "too many requests at once")

    def _start(self, request: Request, answer: HttpAnswer) -> None:
        self._answer = answer
        # Not create_task: it has a number written into the name of each, which takes a sixth of the time.
        self.task = request.task = asyncio.Task(self._run(request, answer), loop=self._loop, name="request")

    async def _run(self, request: Request, answer: HttpAnswer) -> None:
        try:
            # Not a function of theirs, which every call would pay for.
            taken = self._places.begins.taken
            if not taken:
                self._loop.call_soon(taken.clear)
            if len(taken) < AT_ONCE:
                taken.append(None)
            else:
                await self._places.begins.wait()
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
        finally:
            # A failure keeps this frame, which must not keep the task in turn.
            body = request.body
            request.task = body.wanted = body.open_socket = None
            if body.held is not None:
                body.release()
        self._next(request, answer)

    def _report(self, message: str, error: Exception | None = None) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error, "protocol": self})

    def _fail(self, answer: HttpAnswer) -> None:
        """Answer with the failure, or break off if an answer has begun, so that nobody takes it for complete."""
        if answer.status is not None:
            answer.abort()
            return
        answer.keep = False
        answer.send(500, _JSON, b'{"detail":"the request failed unexpectedly"}')

    def _next(self, request: Request, answer: HttpAnswer) -> None:
        self.task = self._answer = None
        if self._timers is None:
            return
        self._timers.quiet_since = self._loop.time()
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
        """Stop reading, because the beginning of the next request is unknown. Earlier requests are still answered."""
        self._deaf = True
        self._refusal = refusal
        body = self._requests.body
        if body is not None:
            body.release()
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
        self._places.on_refusal(f"http_{refusal.status}")
        body = _detail(refusal)
        HttpAnswer(self, keep=False).send(refusal.status, [*_JSON, NOSNIFF], body)
        self._leave(arriving=True)

    def _turn_away(self) -> None:
        """Refuse this connection, for which there is no place, and close it at once."""
        self._deaf = True
        self._places.on_refusal(ConnectionsTaken.code)
        refusal = Refusal(ConnectionsTaken.http, ConnectionsTaken.hint)
        HttpAnswer(self, keep=False).send(refusal.status, [*_JSON, NOSNIFF, _RETRY_SOON], _detail(refusal))
        self._transport.close()

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
        try:
            self._transport.write_eof()
        except OSError:
            # The client has reset the connection, and the loop has not read that yet.
            self._transport.abort()
            return
        if self.paused:
            self.paused = False
            self._transport.resume_reading()
        self._expect(self._patience.linger, self._transport.abort)

    def _resume_reading(self) -> None:
        if self.paused and len(self._waiting) < PIPELINE_LIMIT and not self._transport.is_closing():
            self.paused = False
            self._transport.resume_reading()

    def _open_socket(self, body: Body) -> BodySocket | None:
        """Leave the rest of ``body`` to threads, if it is what comes next and that is worth it."""
        if self._deaf or self._requests.body is not body:
            return None
        opened = BodySocket.open(self._transport, body, self._read_on)
        if opened is not None:
            self.paused = False  # the client is waited for, and not the reader
        return opened

    def _read_on(self, left: int) -> None:
        if not self._lost and not self._transport.is_closing():
            self._requests.read_on(left)
            self._transport.resume_reading()

    def _say_continue(self, answer: HttpAnswer) -> None:
        if answer.status is None:
            self.write(_CONTINUE)

    def _expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        if self._timers is not None:
            self._timers.expect(seconds, otherwise)

    def refuse_slow_head(self) -> None:
        if not self._deaf:
            self._refuse(
                Refusal(408, f"the head of the request took longer than {self._patience.for_head:g} s")
            )

    # --- for answers and the listener -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not (self._lost or self._mute or self._transport.is_closing()):
            self._transport.write(data)

    def soon(self, act: Callable[[], None]) -> None:
        self._loop.call_soon(act)

    @property
    def full(self) -> bool:
        """Tell whether data that is written now would only wait here."""
        return self._write_paused or self._lost

    async def drained(self) -> None:
        """Wait until the client takes more. Raises ClientGone, also for one that takes nothing for too long."""
        if self._write_paused and self._timers is not None:
            self._timers.watch_drain()
            self._writable = self._loop.create_future()
            await self._writable
        if self._lost:
            raise ClientGone("the client has gone")

    async def send_file(self, file: Sendable, offset: int, length: int) -> None:
        await send_file(self._transport, self.drained, file, offset, length, self._patience.stall)

    def abort(self) -> None:
        self._transport.abort()

    @property
    def leaving(self) -> bool:
        """True while the last answer may still be on its way."""
        return self.task is None and (self._mute or self._transport.is_closing())

    @property
    def silent(self) -> bool:
        """True while no request of this connection is being answered."""
        return self._answer is None

    def retire(self) -> None:
        """Make the last request that has arrived, or else the next one, the last of this connection.

        Its answer says so. One whose head has left already cannot say it any more, so another may follow.
        """
        self._once = True
        last = self._waiting[-1][1] if self._waiting else self._answer
        if last is not None and last.status is None:
            last.keep = False

    def close_if_idle(self, since: float) -> None:
        """Close a connection whose last answer was given before ``since`` (loop time), unless something arrives."""
        timers = self._timers
        if self._answer is not None or timers is None or timers.quiet_since > since:
            return
        # A request that is here already would be lost with it.
        if not self._requests.in_head and not has_arrived(self._transport):
            self._transport.close()


def _detail(refusal: Refusal) -> bytes:
    return b'{"detail":"%s"}' % refusal.why.encode()
