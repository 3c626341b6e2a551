"""Answers of a local server, read by the relay piece by piece: whole, as an event stream, or not known yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from adapter.errors import AdapterError, UpstreamBroken
from adapter.rules.access.headers import SharedFields
from adapter.upstream.local.deadlines import Deadlines
from adapter.upstream.local.events import StreamBounds
from adapter.upstream.local.messages import JSON, LocalAnswer
from adapter.upstream.port import Headers, UpstreamReply, WholeReply, dropped, silent
from adapter.upstream.reply import again
from adapter.wire.envelope import failure
from adapter.wire.sse import encode

EVENTS = SharedFields([("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache, no-transform")])

BOUNDS = StreamBounds()
UNREAD_AT_MOST = BOUNDS.messages
"""Messages that wait to be read on one stream before its writer has to wait, or learns that it is full."""


class EventStream:
    """An UpstreamReply of server-sent events. ``left`` is called once, when its reader has given up.

    ``number`` tells the streams of a session apart. ``emptied`` is called each time its reader has taken what was
    unread, and when the stream is over.
    """

    needs_request = True
    """The server that fills it has the request as long as it works on it."""

    def __init__(self, left: Callable[[], None], number: int = 0, bounds: StreamBounds = BOUNDS) -> None:
        self.status = 200
        self.headers: Headers = EVENTS
        self.whole: bytes | None = None
        self.number = number
        self._left = left
        self.emptied: Callable[[], None] | None = None
        self.unread_size = 0
        self._bounds = bounds
        self._unread: deque[bytes] = deque()
        self._ended = False
        self._aborted = False
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    def __repr__(self) -> str:
        state = "aborted" if self._aborted else "ended" if self._ended else "open"
        return f"<EventStream: {state}, {len(self._unread)} unread>"

    # --- the writer -------------------------------------------------------------------------------------------

    async def put(self, message: bytes) -> None:
        """Send ``message`` when there is room for it. A stream that is over drops it."""
        while not self.offer(encode(message)):
            self._emptied.clear()
            await self._emptied.wait()

    def offer(self, event: bytes) -> bool:
        """Send an encoded event now; False where too much is unread."""
        if self.over:
            return True
        if self._unread and not self._has_room_for(event):
            return False
        self._append(event)
        return True

    def end(self, last: bytes | None = None) -> None:
        """End the stream behind the event ``last``, which is sent whether or not there is room for it."""
        if last is not None and not self.over:
            self._append(last)
        self._ended = True
        self._filled.set()
        # A writer that waits for room has nothing to send any more.
        self._has_emptied()

    @property
    def over(self) -> bool:
        """Tell whether nothing can be sent on it any more."""
        return self._ended or self._aborted

    def _has_room_for(self, event: bytes) -> bool:
        bounds = self._bounds
        return len(self._unread) < bounds.messages and self.unread_size + len(event) <= bounds.size

    def _append(self, event: bytes) -> None:
        self._unread.append(event)
        self.unread_size += len(event)
        self._filled.set()

    def _has_emptied(self) -> None:
        self._emptied.set()
        if self.emptied is not None:
            self.emptied()

    # --- the reader -------------------------------------------------------------------------------------------

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        if not self._unread and not self._ended and not self._aborted:
            self._filled.clear()
            try:
                async with asyncio.timeout(read_timeout):
                    await self._filled.wait()
            except TimeoutError:
                raise silent(read_timeout) from None
        if self._aborted:
            raise dropped()
        chunk = b"".join(self._unread)
        self._unread.clear()
        self.unread_size = 0
        self._has_emptied()
        return chunk

    def abort(self) -> None:
        """See UpstreamReply."""
        if self._aborted or (self._ended and not self._unread):
            return
        self._aborted = True
        self._unread.clear()
        self.unread_size = 0
        self._filled.set()
        self._has_emptied()
        self._left()


class PendingReply:
    """The reply to a request whose answer is not known yet: an event stream from its first message on, else JSON.

    ``give_up`` is called when nobody waits for the answer any more; it may be called again. ``withdrawn`` says that
    the client cancelled the request, ``overdue`` that the time for its answer has passed. ``limit`` is the time in
    seconds after which the server answers by itself. ``events`` encodes what is sent as events.
    The server ends every reply, with ``answer``, ``fail`` or ``end``; only the first of them counts.
    """

    __slots__ = (
        "_answer", "_events", "_failure", "_give_up", "_limit", "_settled", "forget", "over", "overdue", "stream",
        "withdrawn",
    )  # fmt: skip

    def __init__(
        self,
        give_up: Callable[[], None],
        limit: float | None = None,
        events: Callable[[bytes], bytes] = encode,
    ) -> None:
        self._give_up = give_up
        self._limit = limit
        self._events = events
        # There is one while somebody waits.
        self._settled: asyncio.Future[None] | None = None
        self.stream: EventStream | None = None
        self._answer: LocalAnswer | None = None
        self._failure: AdapterError | None = None
        self.over = False
        self.overdue = False
        self.withdrawn = False
        self.forget: Callable[[], None] | None = None

    # --- the server -------------------------------------------------------------------------------------------

    async def send(self, message: bytes) -> None:
        """Send the client a notification or request ahead of the answer, when there is room for it."""
        if not self.over:
            await self.streamed().put(message)

    def offer(self, message: bytes, bounds: StreamBounds) -> bool:
        """Do the same at once; False where more is unread than ``bounds`` allow, and the message is lost."""
        return self.over or self.streamed(bounds).offer(self._events(message))

    def streamed(self, bounds: StreamBounds = BOUNDS) -> EventStream:
        """The stream of the reply, which is one from now on."""
        if self.stream is None:
            self.stream = EventStream(self.give_up, bounds=bounds)
            self._settle()
        return self.stream

    def answer(self, answer: LocalAnswer) -> None:
        """End the reply with its answer."""
        if not self.over:
            self._answer = answer
            self._finish(answer.body)

    def fail(self, error: AdapterError, id_bytes: bytes) -> None:
        """End the reply with a failure: its caller gets it, or on a stream the client under this id."""
        if self.stream is not None:
            self.answer(LocalAnswer(failure(error, id_bytes)))
        elif not self.over:
            self._failure = error
            self._finish(None)

    def end(self) -> None:
        """End the reply without an answer: the caller gets UpstreamBroken, or 202 where the client withdrew."""
        if not self.over:
            self._finish(None)

    # --- the transport ----------------------------------------------------------------------------------------

    async def head(self, read_timeout: float | None, deadlines: Deadlines) -> UpstreamReply:
        """Wait until the kind of the reply is known. ``deadlines`` are those of all who wait for the server.

        Raises UpstreamSilent, the failure of the reply, and UpstreamBroken when it ends without an answer. Then, as
        when the caller is cancelled, the request is given up.
        """
        if not self.over and self.stream is None:
            # One future and a deadline: asyncio.wait would cost a quarter of a call whose result was kept. A server
            # with a limit has a timer already.
            limited = read_timeout is None or (self._limit is not None and self._limit < read_timeout)
            late = None if limited else self._settle
            if late is not None and read_timeout is not None:
                deadlines.set(late, read_timeout)
            self._settled = deadlines.loop.create_future()
            try:
                await self._settled
            except BaseException:
                self.give_up()
                raise
            finally:
                if late is not None:
                    deadlines.drop(late)
        if self.stream is not None:
            return self.stream
        if self._answer is not None:
            return whole(self._answer)
        if self.over and self.withdrawn:
            return WholeReply(202)
        if self.over:
            # One failure may end many requests.
            raise again(self._failure or UpstreamBroken())
        self.overdue = True
        self.give_up()
        raise silent(read_timeout)

    def withdraw(self) -> None:
        """Give the request up because its client sent ``notifications/cancelled``."""
        self.withdrawn = True
        self.give_up()

    def give_up(self) -> None:
        """Tell the server that nobody waits for the answer any more."""
        if not self.over:
            self._give_up()

    def _finish(self, last: bytes | None) -> None:
        self.over = True
        # It knows this reply.
        self._give_up = _nothing
        if self.stream is not None:
            self.stream.end(None if last is None else self._events(last))
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        if self.forget is not None:
            self.forget()
            self.forget = None

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)


def _nothing() -> None:
    """Nobody is left to be told."""


def whole(answer: LocalAnswer) -> WholeReply:
    """The reply with this answer as JSON."""
    headers: Headers = JSON if answer.headers is None else answer.headers
    if answer.session_id is not None:
        headers = (*headers, ("Mcp-Session-Id", answer.session_id))
    return WholeReply(answer.status, headers, answer.body)
