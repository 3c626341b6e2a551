"""Limits of what goes to an upstream: the time that answers take, so many seconds without a message at most and so many
in all for a tool call; exchanges of one purpose at once; and files that the system lets this process open.
"""

from __future__ import annotations

import asyncio
import re
import resource
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

from adapter.errors import AdapterError, LimitReached
from adapter.upstream.port import (
    ReadLimit,
    ReplyAround,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    pour,
    until,
)
from adapter.wire.envelope import Batch, Envelope

SLOW = 10
"""Timeouts that one message may take which comes in pieces, where it is short."""

SLOW_BYTES = 1024
"""Bytes of such a message that allow it one timeout more."""

PERSON_SECONDS = 3600.0
"""Seconds for which a server that has asked its client is waited for as long as it keeps the connection alive: a person
may have to answer, or a model.
"""

_FIELD = 16
"""Bytes of a line's beginning that tell whether it has data."""

# The line is one of an event stream. A comment, a blank line, an id and a time to come back in tell nothing.
_TELLS = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])data:[ \t]*[^\s]")

# As servers write nearly every message: whole, at the beginning of a line. What ends with a line end is checked beside.
_WHOLE_MESSAGE = re.compile(rb"(?:(?:event|id):[^\r\n]*\r?\n){0,2}data:[ \t]*[^\s]")

# As the official SDKs begin one; the expression costs ten times as much.
_USUAL = (b"event: message\r\ndata: {", b"event: message\ndata: {")

_QUESTIONS = (b'"elicitation/create"', b'"sampling/createMessage"')
_LONGEST_METHOD = max(map(len, _QUESTIONS))
# It is in both. Sought by ``find``: for ``in``, CPython 3.11 first makes an error that nobody sees.
_IN_QUESTIONS = b"/create"

_LOOK = 1 << 16
"""Bytes of a message behind which no question is looked for: the look would cost more than the rest of its way. And
bytes of a compressed piece above which no more of its stream is looked into.
"""

_ANY_HEADER = zlib.MAX_WBITS | 32

_CALL = "tools/call"


class ReadTimer:
    """Lets one task at a time wait for an event on a connection.

    The alarm outlives the waits: it is set when a wait could end before it rings, and looks at the latest
    deadline when it does. So a call on a warm connection needs no timer.

    ``silent`` are the seconds that were waited since the last message or part of one; whoever sends a request sets them
    to 0.
    """

    __slots__ = (
        "_alarm", "_alarm_at", "_asked_until", "_deadline", "_line", "_loop", "_read_timeout", "_since", "_size",
        "_tail", "_unpacker", "_waited", "_waiter", "silent",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[bool] | None = None
        self._read_timeout: float | None = None
        self._since = 0.0
        self._deadline = inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self.silent = self._waited = self._asked_until = 0.0
        self._line: bytes | None = None
        """The beginning of the event stream's line that comes in; None for an answer that is no event stream or cannot
        be read as one, of which all bytes count.
        """
        self._tail = b""
        self._unpacker: zlib._Decompress | None = None
        self._size = 0

    def start(self, read_timeout: float | None) -> asyncio.Future[bool]:
        """Begin a wait, which ends with True when woken, with False after ``read_timeout`` seconds of silence, those of
        earlier waits included; None waits for ever.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        self._read_timeout = read_timeout
        if read_timeout is None:
            self._deadline = inf
        else:
            self._since = self._loop.time()
            self._deadline = self._since + read_timeout - self.silent
            if self._deadline < self._alarm_at:
                self._set_alarm()
        return waiter

    def expect(self, is_event_stream: bool, *, is_packed: bool = False) -> None:
        """Begin with another answer, whose head has come; that ends the silence too. ``is_packed``: zlib reads it."""
        self._unpacker = zlib.decompressobj(_ANY_HEADER) if is_packed else None
        self._line, self._tail = b"" if is_event_stream else None, b""
        self.silent = self._asked_until = self._waited = 0.0
        self._size = 0

    def wake(self, arrived: bool = True) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if self._read_timeout is not None:
                self.silent += self._loop.time() - self._since
            if not waiter.done():
                waiter.set_result(arrived)

    def hear(self, piece: bytes) -> None:
        """Count what came of an answer. A message, or a part of one, ends the silence; what only keeps the connection
        alive does not, unless the server waits for its client, nor does a message that hardly goes on.
        """
        read_timeout, is_waiting = self._read_timeout, self._waiter is not None
        if read_timeout is None:
            return
        now = self._loop.time()
        if is_waiting:
            self.silent += now - self._since
            self._since = now
        if self._unpacker is not None and not (piece := self._unpacked(piece, self._unpacker)):
            return
        if (
            self._line == b""
            and piece[-1:] == b"\n"
            and (piece.startswith(_USUAL) or _WHOLE_MESSAGE.match(piece))
            and piece.find(_IN_QUESTIONS) < 0
        ):
            self._asked_until = self._waited = 0.0
            self._size = 0
        elif not self._goes_on(piece, now, read_timeout):
            return
        self.silent = 0.0
        if is_waiting:
            self._deadline = self._since + read_timeout

    def _goes_on(self, piece: bytes, now: float, read_timeout: float) -> bool:
        """Tell whether a piece that may be anything ends the silence."""
        is_whole = False
        if (line := self._line) is not None:
            text = line + piece if line else piece
            told = _TELLS.search(text) if b"data:" in text else None
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            self._line = text[end : end + _FIELD]
            if told is None:
                self._tail = b""
                if now >= self._asked_until:
                    return False
            else:
                seen = self._tail + piece if self._tail else text
                self._tail = seen[-_LONGEST_METHOD:] if self._line else b""
                if self._size < _LOOK and (_QUESTIONS[0] in seen or _QUESTIONS[1] in seen):
                    self._asked_until = now + PERSON_SECONDS
                elif not line or told.start():
                    self._asked_until = 0.0
            is_whole = told is None or end > told.end()
        if is_whole:
            self._waited, self._size = 0.0, 0
        else:
            self._waited += self.silent
            self._size += len(piece)
            if self._waited > read_timeout * (SLOW + self._size / SLOW_BYTES):
                return False
        return True

    def _unpacked(self, piece: bytes, unpacker: zlib._Decompress) -> bytes:
        """The events in a compressed piece; the piece itself, and all that follow, where they cannot be had cheaply."""
        try:
            text = unpacker.decompress(piece, _LOOK)
            if not unpacker.eof and not unpacker.unconsumed_tail:
                return text
        except zlib.error:
            pass
        self._unpacker = self._line = None
        return piece

    def stop(self) -> None:
        """Cancel the alarm: no wait will follow."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        self.stop()
        self._alarm_at = self._deadline
        self._alarm = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, inf
        if self._waiter is None or self._deadline == inf:
            return
        if self._deadline > self._loop.time():
            self._set_alarm()
        else:
            self.wake(False)
            # Who asks again waits again.
            self.silent = 0.0


class LimitedUpstream:
    """An Upstream that ends tool calls after ``limit`` seconds with CallTooLong; all else is as at ``upstream``."""

    def __init__(self, upstream: Upstream, limit: ReadLimit) -> None:
        self._upstream = upstream
        self._limit = limit

    def __repr__(self) -> str:
        return f"<LimitedUpstream {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Raises CallTooLong."""
        if not _is_call(request.envelope):
            return await self._upstream.send(request, read_timeout)
        deadline = asyncio.get_running_loop().time() + self._limit
        async with until(deadline, self._limit):
            reply = await self._upstream.send(request, read_timeout)
        return reply if reply.whole is not None else LimitedReply(reply, deadline, self._limit)

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()


class LimitedReply(ReplyAround):
    """The answer to a call, which ends at ``deadline`` (the loop's time)."""

    __slots__ = ("_deadline", "_limit")

    def __init__(self, reply: UpstreamReply, deadline: float, limit: ReadLimit) -> None:
        super().__init__(reply)
        self._deadline = deadline
        self._limit = limit

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply. Raises CallTooLong."""
        async with until(self._deadline, self._limit):
            return await self._reply.read(read_timeout)

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See PouredReply. A client that reads slowly takes time of its call."""
        async with until(self._deadline, self._limit):
            await pour(self._reply, sink, read_timeout)


def _is_call(message: Envelope | Batch | None) -> bool:
    if isinstance(message, Batch):
        return any(map(_is_call, message.members))
    return message is not None and message.method == _CALL


RESERVE = 64
"""Open files that are kept free for connections of another kind, where the system allows many."""


def scarce(number: int, reserves: int) -> bool:
    """Tell whether fewer files than ``reserves`` times the reserve may still be opened beside the one of this number.

    A new file has the lowest number that is free, so all below it are in use.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return False
    return number >= allowed - reserves * min(RESERVE, allowed // 8)


C = TypeVar("C")


@dataclass(eq=False, slots=True)
class ExchangeLimit(Generic[C]):
    """At most ``limit`` exchanges at once, each on a connection (C) of its own.

    ``patience``: seconds that one more waits for a place; without patience it is refused at once. A refusal names
    ``noun``, what there are too many of, and ``setting``, which limits them.
    """

    limit: int
    patience: float = field(kw_only=True)
    noun: str = field(kw_only=True)
    setting: str = field(kw_only=True)
    taken: int = field(default=0, init=False)
    queue: deque[asyncio.Future[C | None]] = field(default_factory=deque, init=False)
    on_wait: Callable[[float, bool], None] | None = field(default=None, init=False)
    """Is told how many seconds an exchange waited, and True if it got a place; None where nobody counts."""

    def __repr__(self) -> str:
        return f"<ExchangeLimit: {self.taken} of {self.limit} taken, {len(self.queue)} wait>"

    async def turn(self, give_back: Callable[[C], None]) -> C | None:
        """Wait for a place with a connection that is free, or for a place to open one in (None).

        ``give_back`` takes a connection that came too late for who waited. Raises LimitReached when no place became
        free for ``patience`` seconds.
        """
        if not self.patience:
            raise self._full()
        loop, given = asyncio.get_running_loop(), False
        turn: asyncio.Future[C | None] = loop.create_future()
        began = loop.time()
        self.queue.append(turn)
        try:
            async with asyncio.timeout(self.patience):
                connection = await turn
            given = True
            return connection
        except TimeoutError as error:
            self._decline(turn, give_back)
            raise self._full() from error
        except BaseException:
            self._decline(turn, give_back)
            raise
        finally:
            if self.on_wait is not None:
                self.on_wait(loop.time() - began, given)

    def give(self, connection: C | None) -> bool:
        """Hand a free place, with its connection or without one, to the longest waiter; False if none waits."""
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def free(self) -> None:
        """A place has become free."""
        if not (self.queue and self.give(None)):
            self.taken -= 1

    def refuse(self, error: AdapterError) -> None:
        """Tell all who wait that nothing will become free."""
        for turn in self.queue:
            if not turn.done():
                turn.set_exception(error)
        self.queue.clear()

    def _decline(self, turn: asyncio.Future[C | None], give_back: Callable[[C], None]) -> None:
        """Leave the queue; a place that was given in the same moment goes to the next."""
        if turn in self.queue:
            self.queue.remove(turn)
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            connection = turn.result()
            if connection is None:
                self.free()
            else:
                give_back(connection)

    def _full(self) -> LimitReached:
        return LimitReached(
            f"All {self.limit} {self.noun} to the upstream server are in use, and {self.setting} allows "
            "no more; try again shortly.",
            data={"limit": self.limit, "setting": self.setting, "retry_after": 1},
            retry_after=1,
        )
