"""The answer to one request, as it arrives on a connection; of all of them so much moves in one turn of the loop.

Heads of answers that came before from an upstream: fields that later answers share, and bytes to know them by.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol
from weakref import WeakKeyDictionary

from adapter.rules.access.headers import Field, SharedFields
from adapter.upstream.port import Headers, PouredReply, Sink, silent
from adapter.upstream.timeouts import ReadTimer
from adapter.wire.repeated_head import BODILESS, LONGEST, RepeatedHead, repeated_head

PAUSE_ABOVE = 256 * 1024
"""Unread bytes above which the socket is left alone. A read takes them all, so it also resumes."""

SMALL = 32 * 1024
"""Unread bytes that are handed on without a look at what others hand on in the same turn."""


PER_TURN = 2 << 20
"""Bytes that move in one turn, but for the last piece; they take some milliseconds."""


class Carrier(Protocol):
    """The connection that an answer arrives on. ``read_timer`` tells of what comes."""

    @property
    def read_timer(self) -> ReadTimer: ...

    @property
    def sends(self) -> bool:
        """True while a part of the request waits to be sent."""

    def resume(self) -> None:
        """Read on, if reading had stopped because the reader was slow."""

    def abort(self) -> None:
        """Drop the connection."""


class HttpReply(PouredReply):
    """An UpstreamReply in the making; it collects what its connection hands it. For one reader at a time."""

    __slots__ = (
        "_chunks", "_connection", "_full", "_sink", "buffered", "failure", "headers", "status", "whole",
    )  # fmt: skip

    def __init__(self, connection: Carrier) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.whole: bytes | None = None
        self.failure: Exception | None = None
        self.buffered = 0
        self._chunks: list[bytes] = []
        self._connection: Carrier | None = connection
        self._sink: Sink | None = None
        self._full = False

    def __repr__(self) -> str:
        state = "complete" if self._connection is None else "failed" if self.failure else "arriving"
        return f"<HttpReply {self.status or 'without head'}: {state}, {self.buffered} bytes unread>"

    @property
    def needs_request(self) -> bool:
        """See UpstreamReply."""
        return self._connection is not None and self._connection.sends

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply. After UpstreamSilent the answer is intact: asking again waits again."""
        while not self._chunks:
            if self._connection is None:
                return b""
            if self.failure is not None:
                raise again(self.failure)
            if not await self._connection.read_timer.start(read_timeout):
                raise silent(read_timeout)
        return self._take()

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See PouredReply. The connection calls ``push`` meanwhile, so that no task wakes for a chunk."""
        self._sink = sink
        try:
            while True:
                if not self.push():
                    await sink.drained()
                    if self.buffered > SMALL:
                        await share_of_this_loop().take(self.buffered)
                    self._full = False
                    self.push(granted=True)
                elif self.failure is not None:
                    raise again(self.failure)
                elif self._connection is None:
                    return
                elif not await self._connection.read_timer.start(read_timeout):
                    raise silent(read_timeout)
        finally:
            self._sink, self._full = None, False

    def abort(self) -> None:
        """See UpstreamReply."""
        if self._connection is not None:
            self._connection.abort()

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.buffered += len(chunk)

    def push(self, *, granted: bool = False) -> bool:
        """Hand what came to the sink; False without one, or if it is full, or if much has moved in this turn, unless
        a share of it is ``granted``.
        """
        if self._sink is None or self._full:
            return False
        if self.buffered > SMALL and not granted and not share_of_this_loop().spend(self.buffered):
            # Many answers may bring more, or many clients take more, at the same moment.
            self._full = True
            return False
        if self._chunks:
            try:
                # With the end behind it, one write less counts on a short stream.
                self._full = not self._sink.put(self._take(), more=self._connection is None)
            except Exception as error:
                # It is for who pours to know; a transport that saw it would only break its own connection.
                self.failure = error.with_traceback(None)
                self.abort()
        return not self._full

    def complete(self) -> None:
        """The body came to its end; from here on the connection belongs to another exchange."""
        self._connection = None

    def arrive(self, status: int, headers: Headers, content: bytes) -> None:
        """Take an answer that came in one piece."""
        self.status, self.headers, self.whole = status, headers, content
        if content:
            self._chunks.append(content)
            self.buffered = len(content)
        self._connection = None

    def settle_whole(self) -> None:
        """Decide what ``whole`` is: the answer is on its way to the caller."""
        if self._connection is None:
            self.whole = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def _take(self) -> bytes:
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        unread = self.buffered
        self._chunks.clear()
        self.buffered = 0
        connection = self._connection
        if connection is not None:
            connection.read_timer.hear(piece)
            if unread > PAUSE_ABOVE:
                connection.resume()
        return piece


def again(failure: Exception) -> Exception:
    """Copy a failure that is kept, to raise the copy: the kept one would hold, by its traceback, all who waited."""
    # What copy.copy does, without calling their constructors: each stream ends by here.
    other = type(failure).__new__(type(failure), *failure.args)
    other.__dict__.update(vars(failure))
    return other


class ByteShare:
    """Lets at most so many bytes move in each turn of one loop; who comes when these are spent waits for a later turn,
    in the order of coming.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._taken = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def __repr__(self) -> str:
        return f"<ByteShare: {self._taken} bytes taken, {len(self._waiting)} pieces waiting>"

    def spend(self, size: int) -> bool:
        """Move ``size`` bytes now; False if this turn has none left, or others wait for them."""
        if self._taken >= PER_TURN or self._waiting:
            return False
        self._taken += size
        return True

    async def take(self, size: int) -> None:
        """Wait until ``size`` bytes, more than none, may move."""
        if self.spend(size):
            return
        if not self._waiting:
            # Not before somebody waits: for a lone answer each turn more is time lost.
            self._loop.call_soon(self._next_turn)
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((turn, size))
        await turn

    def _next_turn(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < PER_TURN:
            turn, size = self._waiting.popleft()
            if not turn.done():
                self._taken += size
                turn.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._next_turn)


_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, ByteShare] = WeakKeyDictionary()


def share_of_this_loop() -> ByteShare:
    """Return the share of the running loop."""
    loop = asyncio.get_running_loop()
    share = _shares.get(loop)
    if share is None:
        share = _shares[loop] = ByteShare(loop)
    return share


KINDS = 8
"""Kinds of heads that are remembered: a session has one at its beginning, for its notification, its calls, its end."""


class KnownAnswer:
    """The last head of one kind: that of a status with so many fields.

    ``shared`` are the fields that many of them have. ``repeated`` is None while the next one cannot be recognized.
    ``keep_alive`` is its Keep-Alive field, if it has one.
    """

    __slots__ = ("fields", "keep_alive", "repeated", "shared", "status")

    def __init__(self, status: int) -> None:
        self.status = status
        self.fields: list[Field] = []
        self.shared = SharedFields(())
        self.repeated: RepeatedHead | None = None
        self.keep_alive: bytes | None = None

    def __repr__(self) -> str:
        return f"<KnownAnswer {self.status} of {len(self.shared)} fields>"

    def take(self, fields: list[Field]) -> list[Field]:
        """The fields of a head that has come: shared ones, where another of this kind had the same."""
        if fields == self.shared:
            return self.shared
        if fields == self.fields and sum(len(name) + len(value) for name, value in fields) <= LONGEST:
            self.repeated, self.shared = None, SharedFields(fields)
            return self.shared
        return fields

    def learn(self, fields: list[Field], data: bytes | None) -> None:
        """Note a head whose answer has ended; ``data`` is all of it, None where that did not come in one piece."""
        earlier, self.fields = self.fields, fields
        repeats = data is not None and self._repeats(earlier, data)
        self.repeated = repeated_head(data) if data is not None and repeats else None
        if self.repeated is not None and self.shared != fields:
            self.shared = SharedFields(fields)
        if self.repeated is not None:
            named = [value for name, value in fields if name.lower() == "keep-alive"]
            self.keep_alive = named[-1].encode("latin-1") if named else None

    def _repeats(self, earlier: list[Field], data: bytes) -> bool:
        """Tell whether ``data`` is an answer, with no interim one before it, whose head is as the earlier one's."""
        if len(earlier) != len(self.fields) or data[9:12] != b"%d" % self.status or self.status in BODILESS:
            return False
        for one, other in zip(earlier, self.fields, strict=True):
            if one != other and one[0].lower() != "content-length":
                return False
        return True


class KnownAnswers:
    """The last heads of all connections to an upstream, by their kinds; ``last`` is the one that came last."""

    __slots__ = ("_kinds", "last")

    def __init__(self) -> None:
        self.last = KnownAnswer(0)
        self._kinds: dict[tuple[int, int], KnownAnswer] = {}

    def __repr__(self) -> str:
        return f"<KnownAnswers: {len(self._kinds)}>"

    def take(self, status: int, fields: list[Field]) -> list[Field]:
        """See KnownAnswer; the kind of this head is the ``last`` one now."""
        kind = status, len(fields)
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= KINDS:
                self._kinds.clear()
            known = self._kinds[kind] = KnownAnswer(status)
        self.last = known
        return known.take(fields)

    def body_in(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is one whole answer whose head came before, which is the ``last`` one now."""
        for known in self._kinds.values():
            repeated = known.repeated
            # Most differ in their first bytes, and to see that takes no call of Python.
            if repeated is None or not data.startswith(repeated.before):
                continue
            content = repeated.body_of(data)
            if content is not None:
                self.last = known
                return content
        return None
