"""The event stream that answers a POST, on its way from the upstream to the client.

A *piped* stream leaves as it comes, chunk by chunk; the relay only looks along, to know whether the request was
answered. A *read* stream leaves event by event, each as received, but for the response that stages change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.errors import AdapterError, MessageTooLong, UpstreamBroken, UpstreamSilent
from adapter.relay.background import SLICE, breathe, slices
from adapter.relay.call.resumption import ExchangeRecovery
from adapter.relay.exchange import ClientResponse, Flow
from adapter.relay.replies import LARGE, is_response, messages_in, too_large
from adapter.upstream.port import Sink, UpstreamReply, pour
from adapter.wire.envelope import Envelope, failure, read_response
from adapter.wire.sse import SseEvent, SseReader, data_of_one, encode, replace_data

LOOK_LIMIT = 1 << 20
"""Bytes of one event that are kept to look into. A larger one is taken for an answer: nothing else is so big."""

UNREAD_AT_MOST = 64 << 10
"""Bytes of a piped stream that are kept unread; above, they are read and let go."""

Rewrite = Callable[[bytes], Awaitable[bytes]]

Heed = Callable[[bytes], None]
"""Looks along at what the upstream says, chunk by chunk."""


class FinalBytes(NamedTuple):
    """The bytes that the client gets when the upstream says no more.

    ``goes_on``: another stream of the upstream continues. ``failure`` is the error that the bytes tell.
    """

    words: bytes
    goes_on: bool = False
    failure: AdapterError | None = None


class StreamPolicy(NamedTuple):
    """The terms on which a stream is read.

    ``read_timeout`` is how many seconds it may be silent, None for ever. ``resumable``: a client may come back for the
    rest of it. ``observe`` sees each chunk as it comes. ``limit`` is the largest event (bytes) that is looked into.
    """

    read_timeout: float | None
    resumable: bool
    observe: Heed | None = None
    limit: int = LOOK_LIMIT


class StreamEdits(NamedTuple):
    """The changes of a read stream: ``answer`` of the response, ``aside`` of the data of every other event, and of the
    response too where ``answer`` is None.
    """

    answer: Rewrite | None
    aside: Callable[[bytes], bytes] | None = None


@dataclass(eq=False, repr=False)
class AnswerStream:
    """The stream of one POST. ``wanted`` are the requests it has to answer; ``edits`` make it a read one.

    The promise: it ends with an answer to each request, or after an event id, or with an error event.
    """

    reply: UpstreamReply
    wanted: list[Envelope]
    recovery: ExchangeRecovery
    terms: StreamPolicy
    edits: StreamEdits | None = None
    _reader: SseReader | None = field(default=None, init=False)
    _sink: Sink = field(init=False)
    _skipped: int = field(default=0, init=False)
    _resumed: bool = field(default=False, init=False)
    _failure: AdapterError | None = field(default=None, init=False)
    _unread: list[bytes] = field(default_factory=list, init=False)
    _unread_size: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._asked = self.wanted[0]
        self._read_timeout, self._observe = self.terms.read_timeout, self.terms.observe

    @property
    def _events(self) -> SseReader:
        """The reader of what passes; of most streams only the last event is looked into, which takes none."""
        if self._reader is None:
            self._reader = SseReader(self.terms.limit, skip=self.edits is None)
        return self._reader

    def answer(
        self, status: int, headers: list[tuple[str, str]], release: Callable[[], None]
    ) -> ClientResponse:
        """The answer to the client; its body is a Flow where the stream is piped."""
        body = self.pieces() if self.edits is not None else Flow(self.pieces, self.pour)
        return ClientResponse(status, headers, body, None, release, self.last_words, self.wait_at_least)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            ending = None
            while ending is None or ending.goes_on:
                while chunk := await self._next():
                    if self.edits is None:
                        self._look(chunk)
                        yield chunk
                        await self.catch_up()
                        continue
                    for part in slices(chunk):
                        if piece := await self._pass_events(part):
                            yield piece
                ending = await self._ending()
                if ending.words:
                    yield ending.words
            if ending.failure is not None:
                await self.recovery.gave_up(ending.failure)
        finally:
            self.reply.abort()

    async def pour(self, sink: Sink) -> None:
        """Hand a piped stream on to its end."""
        try:
            ending = None
            self._sink = sink
            while ending is None or ending.goes_on:
                try:
                    await pour(self.reply, self, self._read_timeout)
                except (UpstreamBroken, UpstreamSilent) as error:
                    self._failure = error.with_traceback(None)
                ending = await self._ending()
                if ending.words and not sink.put(ending.words):
                    await sink.drained()
            if ending.failure is not None:
                await self.recovery.gave_up(ending.failure)
        finally:
            self.reply.abort()

    async def _ending(self) -> FinalBytes:
        """The upstream has ended the stream, or broken it off: what becomes of it."""
        await self.catch_up(all_of_it=True)
        rest = self._events.rest if self.edits is not None and self._failure is None else b""
        if not self.wanted:
            return FinalBytes(rest)
        last_id = self._events.last_id if self.terms.resumable else b""
        if self._failure is None and last_id:
            await self.recovery.polled()
            return FinalBytes(rest)
        if isinstance(self._failure, UpstreamBroken) and last_id and not self._resumed:
            self._resumed = True
            if (resumed := await self.recovery.resume(last_id)) is not None:
                seam = self._seam()
                self.reply, self._reader, self._failure = resumed, None, None
                self._events.last_id = last_id
                return FinalBytes(seam, goes_on=True)
        return FinalBytes(rest + self._seam() + self._error_events(), failure=self._why())

    def settled_by(self, body: bytes) -> bool:
        """Tell whether ``body``, if it is the whole of a piped stream, needs nothing added to it. A long one that does
        not end with the answer is not looked into, for that takes its time.
        """
        wanted, skipped = list(self.wanted), self._skipped
        if not self._last_event_answers(body) and len(body) <= SLICE:
            for event in self._events.feed(body):
                self._strike_off(event)
        settled = not self.wanted or (self.terms.resumable and bool(self._events.last_id))
        self.wanted, self._skipped, self._reader = wanted, skipped, None
        if settled and self._observe is not None:
            self._observe(body)
        return settled

    async def last_words(self, error: AdapterError) -> bytes:
        """Complete the stream where nothing more is read of it: an error event for each request that waits."""
        await self.catch_up(all_of_it=True)
        self._failure = error
        return self._seam() + self._error_events()

    def wait_at_least(self, seconds: float) -> None:
        """Let the upstream be silent for so long from now on, because somebody else is to speak. 0 ends that."""
        if self.terms.read_timeout is not None:
            self._read_timeout = max(self.terms.read_timeout, seconds)

    async def _next(self) -> bytes:
        """The next chunk; at the end ``b""``, with the reason kept if it was not a clean one."""
        if self._failure is not None:
            return b""
        try:
            chunk = await self.reply.read(self._read_timeout)
        except (UpstreamBroken, UpstreamSilent) as error:
            self._failure = error.with_traceback(None)
            return b""
        if self._observe is not None:
            self._observe(chunk)
        return chunk

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink: hand on a chunk that is poured. False also where what has passed is to be read first."""
        if self._observe is not None:
            self._observe(chunk)
        self._look(chunk)
        return self._sink.put(chunk, more=more) and self._unread_size <= UNREAD_AT_MOST

    async def drained(self) -> None:
        """See Sink."""
        await self.catch_up()
        await self._sink.drained()

    def _look(self, chunk: bytes) -> None:
        """Keep a chunk. What it holds is asked for only at the end, and seldom more than the last event: reading each
        event as it passes would cost a fifth of a stream.
        """
        if self.wanted:
            self._unread.append(chunk)
            self._unread_size += len(chunk)

    async def catch_up(self, *, all_of_it: bool = False) -> None:
        """Read what has passed, so that ``_wanted`` and the reader tell of it: where it is much, or all of it."""
        if self._unread_size <= UNREAD_AT_MOST and not all_of_it:
            return
        unread = b"".join(self._unread)
        self._unread.clear()
        self._unread_size = 0
        if unread and not (self._failure is None and self._last_event_answers(unread)):
            for part in slices(unread):
                events = self._events.feed(part)
                for event in events:
                    self._strike_off(event)
                await breathe(len(events))

    def _last_event_answers(self, unread: bytes) -> bool:
        """Tell whether the last whole event of ``unread`` is all that was waited for.

        Then the others do not matter.
        """
        blank = b"\r\n\r\n" if unread.endswith(b"\r\n\r\n") else b"\n\n"
        if len(self.wanted) != 1 or not unread.endswith(blank):
            return False
        before = unread.rfind(blank, 0, len(unread) - len(blank))
        if before < 0 and self._reader is not None and self._reader.inside:
            return False
        last = unread[before + len(blank) :] if before >= 0 else unread
        if len(last) - len(blank) > self.terms.limit:
            return False
        data = data_of_one(last)
        return data is not None and self._strike_off_answered(data)

    async def _pass_events(self, chunk: bytes) -> bytes:
        """The chunk's whole events as received, the response among them as the stages want it."""
        assert self.edits is not None
        answer, aside = self.edits
        try:
            events = self._events.feed(chunk)
        except MessageTooLong:
            self._failure = too_large(self.terms.limit)
            return b""
        leaving: list[bytes] = []
        for event in events:
            waiting, seen = self.wanted, event.data
            if event.data and await self._is_answer(event) and answer is not None:
                try:
                    seen = await answer(event.data)
                except AdapterError as error:
                    seen = failure(error, self._asked.id_bytes)
                except asyncio.CancelledError:
                    # It never leaves, so whoever speaks the last words has to know who still waits.
                    self.wanted = waiting
                    raise
            elif event.data and aside is not None:
                seen = aside(event.data)
            leaving.append(event.raw if seen is None or seen is event.data else replace_data(event, seen))
        await breathe(len(events))
        return b"".join(leaving)

    async def _is_answer(self, event: SseEvent) -> bool:
        """As ``_strike_off`` of a stream that is read; a long answer is looked through in turns."""
        if event.data is None or len(event.data) <= LARGE or len(self.wanted) > 1:
            return self._strike_off(event)
        if not self.wanted or not await is_response(event.data, self._asked.id):
            return False
        self.wanted = []
        return True

    def _strike_off(self, event: SseEvent) -> bool:
        """Remove the requests that the event answers from those that still wait. Return whether there was one."""
        if event.skipped:
            # Nobody knows whose answer it is. Until it can be nobody else's, all of them wait: to be answered twice
            # harms none, for the second one comes when its request is over.
            self._skipped += 1
            return self._settle()
        return self._strike_off_answered(event.data) if event.data else False

    def _strike_off_answered(self, data: bytes) -> bool:
        """As ``_strike_off``, for the data of an event."""
        answered = set()
        for message in messages_in(data):
            if (response := read_response(message)) is not None:
                answered.add(response.id)
        if not answered:
            return False
        # An error that names no request may be that of any.
        waiting = [] if None in answered else [each for each in self.wanted if each.id not in answered]
        struck, self.wanted = len(waiting) < len(self.wanted), waiting
        return (self._skipped > 0 and self._settle()) or struck

    def _settle(self) -> bool:
        """Wait for none where as many answers were skipped as are waited for. Whether one was waited for."""
        settled = 0 < len(self.wanted) <= self._skipped
        if settled:
            self.wanted = []
        return settled

    def _seam(self) -> bytes:
        """Closes an event of which the client already has the beginning, so that it is not taken for a message.

        What was sent cannot be taken back, but an event's type may follow its data, and clients dispatch only
        events of type "message". The last whole event's id is said again, in case the torn one had begun its own.
        """
        if self.edits is not None or not self._events.inside:
            return b""
        last_id = self._events.last_id
        # Where a line has just ended, one more line end would be the blank line that dispatches the event.
        rest = self._events.rest
        line_end = b"\n" if rest and rest[-1] not in b"\r\n" else b""
        return line_end + b"event: torn\n" + (b"id: " + last_id + b"\n" if last_id else b"") + b"\n"

    def _why(self) -> AdapterError:
        return self._failure or UpstreamBroken("The upstream server ended its answer without a response.")

    def _error_events(self) -> bytes:
        return b"".join(encode(failure(self._why(), envelope.id_bytes)) for envelope in self.wanted)
