"""One HTTP/1.1 connection to an upstream, and the answer that arrives on it.

httptools decides what bytes mean; this protocol decides what they mean *for the connection*: whether it can
serve again, when to stop reading because the reader is slow, and the failure of each kind of ending.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections.abc import Callable
from typing import Any, cast

import httptools

from adapter.errors import AdapterError, UpstreamBroken
from adapter.upstream.port import dropped, silent
from adapter.upstream.reply import PAUSE_ABOVE, HttpReply, KnownAnswers, again
from adapter.upstream.timeouts import ExchangeLimit, ReadTimer, scarce

HEAD_LIMIT = 64 * 1024
"""Bytes an answer's head, with every interim answer before it, may take."""

JOIN_BELOW = 64 * 1024
"""A body below this leaves in one piece with its head; copying a larger one costs more than two writes."""

STREAM_BUFFER = 32 * 1024
"""Bytes of a stream that wait in its socket; the kernel takes twice as many."""

KEPT_SECONDS = 4.0
"""Seconds that a connection is used again where its server does not say for how long it keeps it. Servers do so for
5 seconds or more, as a rule.
"""

_TIMEOUT = re.compile(rb"(?i)(?:^|[\s,;])timeout\s*=\s*\"?([0-9]{1,6})")


class NoAnswerError(Exception):
    """The connection ended before a byte of answer. Whether to try again is for its owner to say."""


class NotSentError(NoAnswerError):
    """The connection had ended before the request was written, so nothing can have come of it."""


class Connection(asyncio.Protocol):
    """Carries one exchange at a time.

    ``released(self)`` is called when it can serve the next exchange, ``lost(self)`` once when it is gone. ``keeps`` is
    for how many seconds without an exchange the peer keeps the connection. ``known`` are the answers that came on all
    connections to the same upstream. The pool notes what the exchange counts
    against (``places``), and the loop's time at which it began (``taken_at``) and from which the connection is not to
    be used again (``stale_at``).
    """

    __slots__ = (
        "_answer", "_barren", "_close_delimited", "_fed", "_fields", "_headed", "_keep", "_keep_alive", "_kind",
        "_known", "_lines", "_lines_read", "_lost", "_packs_events", "_parser", "_paused", "_readable", "_released",
        "_surplus", "_tells_events", "_transport", "gone", "keeps", "loop", "places", "read_timer", "reused",
        "stale_at", "taken_at",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        released: Callable[[Connection], None],
        lost: Callable[[Connection], None],
        known: KnownAnswers | None = None,
    ) -> None:
        self.loop = loop
        self.gone = False
        self.reused = False
        self.keeps = KEPT_SECONDS
        self.places: ExchangeLimit[Connection] | None = None
        self.taken_at = self.stale_at = 0.0
        self.read_timer = ReadTimer(loop)
        self._released = released
        self._lost = lost
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: HttpReply | None = None
        self._readable = select.poll()
        self._fields: list[tuple[str, str]] = []
        self._lines: list[tuple[bytes, bytes]] = []
        self._lines_read = self._lines
        """The fields that ``_fields`` was read from, as they came."""
        self._keep_alive = b""
        self._known = known or KnownAnswers()
        self._kind = self._known.last
        self._fed = self._barren = 0
        self._headed = self._keep = self._surplus = self._paused = False
        self._close_delimited = True
        self._tells_events = self._packs_events = False
        """Whether the fields that were read last are those of an event stream that can be looked into, and whether its
        content coding is one of zlib's.
        """

    @property
    def streams(self) -> bool:
        """True while an answer comes in whose head was handed out."""
        return self._answer is not None and self._headed

    @property
    def sends(self) -> bool:
        """True while a part of the request waits to be sent: the upstream answered early."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def usable(self, now: float) -> bool:
        """Tell whether another exchange may begin: the peer still keeps the connection, and has sent nothing since the
        last exchange, not even its end. The socket knows of that before the loop does.
        """
        transport = self._transport
        if transport is None or now >= self.stale_at or transport.is_closing():
            return False
        return not self._readable.poll(0)

    async def exchange(self, head: bytes, body: bytes, read_timeout: float | None) -> HttpReply:
        """Send one request, wait for the head of its answer.

        Drops the connection when it raises NoAnswerError, UpstreamBroken or UpstreamSilent, or is cancelled.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSentError
        answer = self._answer = HttpReply(self)
        self._fed = self._barren = 0
        self._headed = False
        self.read_timer.silent = 0.0
        if len(body) < JOIN_BELOW:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        try:
            while not answer.status:
                if answer.failure is not None:
                    raise again(answer.failure)
                if not await self.read_timer.start(read_timeout):
                    raise silent(read_timeout)
        except BaseException:
            answer.abort()
            raise
        if answer.whole is None:
            answer.settle_whole()
            if answer.whole is None:
                self.read_timer.expect(self._tells_events, is_packed=self._packs_events)
        return answer

    def leaves_few(self, reserves: int) -> bool:
        """See ``scarce``."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return sock is not None and scarce(sock.fileno(), reserves)

    def take_in_small_pieces(self) -> None:
        """Let little wait in the socket: what a stream's client does not read then stays with the server, and one turn
        of the loop does not move a quarter of a mebibyte for each of many streams.
        """
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STREAM_BUFFER)

    def resume(self) -> None:
        """Read on, if reading had stopped because the reader was slow."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection and whatever it was doing, at once. Idempotent."""
        # One that closes has failed its answer already; a stream that ends is dropped by each of its owners.
        if self._transport is not None and not self._transport.is_closing():
            self._break(dropped())

    # --- what the transport says ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not its subclasses
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._readable.register(sock.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.abort()  # no request is open: a time-out notice, or an answer planted for the next request
            return
        if not self._fed:
            content, repeated = None, self._known.last.repeated
            if repeated is not None and data.startswith(repeated.before):
                content = repeated.body_of(data)
            if content is None:
                content = self._known.body_in(data)
            if content is not None:
                self._answer_again(answer, content)
                return
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            reason = error.__context__  # what a callback below raised
            if not isinstance(reason, AdapterError):
                reason = UpstreamBroken("The upstream server's answer is not valid HTTP.")
            self._break(reason)
            return
        if self._answer is None:
            whole = self._fed == len(data) and self._keep and not self._surplus and not self._close_delimited
            self._kind.learn(self._fields, data if whole else None)
            self._settle()
        elif not self._headed:
            if self._fed > HEAD_LIMIT:
                self._break(_head_too_large())
            # A head that comes bit by bit tells nothing, so its time goes on.
            return
        elif not answer.buffered:
            # The framing of a chunk, or trailers, which the parser keeps until they end.
            self._barren += len(data)
            if self._barren > HEAD_LIMIT:
                self._break(UpstreamBroken("The framing of the upstream server's answer is too long."))
        elif answer.push():
            return
        elif answer.buffered > PAUSE_ABOVE and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self.read_timer.wake()

    def _answer_again(self, answer: HttpReply, content: bytes) -> None:
        """Take an answer in one piece whose head says what an earlier one said."""
        self._fed = len(content) or 1
        self._headed = self._keep = True
        known = self._known.last
        known.shared = known.shared.with_length(len(content))
        if known.keep_alive is not None and known.keep_alive != self._keep_alive:
            self._keep_alive, self.keeps = known.keep_alive, kept_for(known.keep_alive)
        answer.arrive(known.status, known.shared, content)
        self._answer = None
        self._settle()
        self.read_timer.wake()

    def eof_received(self) -> None:
        self._end(None)
        # Not the default close(): it would first wait for a peer that may never read the rest of a request.
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionAbortedError())
        self.read_timer.stop()
        self.gone = True
        self._transport = None
        self._lost(self)
        # Parser and answer know this connection, so both would wait for the collector with it.
        self._parser = self._answer = None

    # --- what the parser says -------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is None:
            self._surplus = True
        self._lines = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:  # else a trailer; HTTP lets any recipient drop it
            self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        answer = self._answer
        if answer is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == 101:
                raise UpstreamBroken(f"The upstream server answered {status}, which nobody asked for.")
            return
        # A line has four bytes besides its name and value; the sum is only made where it can matter.
        if self._fed > HEAD_LIMIT and sum(len(n) + len(v) + 4 for n, v in self._lines) > HEAD_LIMIT:
            raise _head_too_large()
        self._headed = True
        if self._lines != self._lines_read:
            self._read_fields()
        answer.headers = self._known.take(status, self._fields)
        answer.status, self._kind = status, self._known.last

    def _read_fields(self) -> None:
        """Read the fields that have come, where the head before had others."""
        self._lines_read, self._fields, self._close_delimited = self._lines, [], True
        is_stream, coding = False, b""
        for name, value in self._lines:
            self._fields.append((name.decode("latin-1"), value.decode("latin-1")))
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                self._close_delimited = False
            elif size == 10 and value != self._keep_alive and name.lower() == b"keep-alive":
                # Most answers on a connection say the same.
                self._keep_alive, self.keeps = value, kept_for(value)
            elif size == 17 and name.lower() == b"transfer-encoding":
                # Any other coding would have to be undone here, since the field does not travel further.
                if value.strip().lower() != b"chunked":
                    raise UpstreamBroken("The upstream server used a Transfer-Encoding other than chunked.")
                self._close_delimited = False
            elif size == 12 and name.lower() == b"content-type":
                is_stream = value.strip().lower().startswith(b"text/event-stream")
            elif size == 16 and name.lower() == b"content-encoding":
                coding = value.strip().lower()
        self._packs_events = is_stream and coding in (b"gzip", b"deflate")
        self._tells_events = self._packs_events or (is_stream and coding in (b"", b"identity"))

    def on_body(self, chunk: bytes) -> None:
        if self._answer is not None:
            self._barren = 0
            self._answer.add(chunk)

    def on_message_complete(self) -> None:
        if self._headed and self._answer is not None:
            self._keep = self._parser.should_keep_alive()
            self._answer.complete()
            self._answer = None

    # --- endings --------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """The answer is complete: serve again, or go."""
        transport = self._transport
        if transport is None:
            return
        # With a part of the request unsent (the upstream answered early) the next would be read as its rest.
        if not self._keep or self._surplus or transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
            return
        if self._paused:
            self.resume()
        self.reused = True
        self._released(self)

    def _end(self, exc: Exception | None) -> None:
        """The peer sends no more; ``exc`` is None after an orderly end."""
        answer = self._answer
        if answer is None:
            return
        if not self._fed:
            self._fail(NoAnswerError())
        elif self._headed and self._close_delimited and exc is None:
            answer.complete()
            self._answer = None
            self.read_timer.wake()
        else:
            self._fail(UpstreamBroken())

    def _break(self, reason: AdapterError) -> None:
        self._fail(reason)
        self.read_timer.wake()  # also when the answer had been complete before the garbage
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: Exception) -> None:
        if self._answer is not None:
            self._answer.failure = self._answer.failure or reason
            self.read_timer.wake()


def kept_for(value: bytes) -> float:
    """Seconds that a connection may be used again, by a Keep-Alive field (RFC 2068, 19.7.1.1). Less than it says: what
    is sent in the last moment arrives when the peer has closed.
    """
    timeout = _TIMEOUT.search(value)
    if timeout is None:
        return KEPT_SECONDS
    seconds = float(timeout[1])
    return max(seconds - 1.0, seconds / 2)


def _head_too_large() -> UpstreamBroken:
    return UpstreamBroken(f"The head of the upstream server's answer exceeds {HEAD_LIMIT // 1024} KiB.")
