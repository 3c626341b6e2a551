"""Answers that leave as they come, with nobody but a listener looking along."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from adapter.errors import AdapterError, AnswerTooLarge, MessageTooLong, UpstreamBroken
from adapter.relay.background import breathe, nothing, slices
from adapter.relay.exchange import Flow
from adapter.relay.replies import kept_fields, too_large
from adapter.upstream.port import Sink, UpstreamReply, WatchedSink, pour
from adapter.wire.sse import SseEvent, SseReader, replace_data

RETRY = b"retry: 3000\n\n"
"""Milliseconds after which the client of a stream that a stopping adapter ends is to come back."""

CHUNK = 1 << 18
"""Bytes of what is kept that are copied at once. New memory for many more has to be found and cleared by the system."""

_LINE_ENDS = b"\r\n"
_SEAM = 4


def piped(reply: UpstreamReply, read_timeout: float | None, first: bytes = b"") -> Flow:
    """``first``, then the rest of an answer as it comes.

    Raises UpstreamBroken or UpstreamSilent where that breaks off.
    """
    return Flow(partial(_piped, reply, read_timeout, first), partial(_pour_piped, reply, read_timeout, first))


def of_pieces(pieces: Sequence[bytes | memoryview]) -> Flow:
    """Pieces that are all there, copied as the client takes them and no sooner."""
    return Flow(partial(_each, pieces), partial(_pour_each, pieces))


async def _each(pieces: Sequence[bytes | memoryview]) -> AsyncGenerator[bytes, None]:
    for chunk in _chunks(pieces):
        yield chunk


async def _pour_each(pieces: Sequence[bytes | memoryview], sink: Sink) -> None:
    for chunk in _chunks(pieces):
        if not sink.put(chunk):
            await sink.drained()


def _chunks(pieces: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), CHUNK):
            yield bytes(piece[start : start + CHUNK])


async def _piped(
    reply: UpstreamReply, read_timeout: float | None, first: bytes
) -> AsyncGenerator[bytes, None]:
    try:
        if first:
            yield first
        while chunk := await reply.read(read_timeout):
            yield chunk
    finally:
        reply.abort()


async def _pour_piped(reply: UpstreamReply, read_timeout: float | None, first: bytes, sink: Sink) -> None:
    try:
        if first and not sink.put(first):
            await sink.drained()
        await pour(reply, sink, read_timeout)
    finally:
        reply.abort()


@dataclass(eq=False, repr=False)
class EditedStream:
    """An UpstreamReply that is an event stream, each message of which passes through ``edit``.

    ``edit`` returns the data of an event as the client may have it; None: it is for somebody else. What the stream ends
    with that is no whole event stays behind, as clients pass over it. ``done`` is called once, when the stream has
    ended or was dropped. ``limit``: bytes of one event. ``observe`` sees what comes.
    """

    reply: UpstreamReply
    edit: Callable[[bytes], Awaitable[bytes | None]]
    limit: int
    done: Callable[[], None] = nothing
    observe: Callable[[bytes], None] = nothing
    whole: bytes | None = field(default=None, init=False)
    _parts: Iterator[bytes] = field(default=iter(()), init=False)

    def __post_init__(self) -> None:
        self.status = self.reply.status
        self.headers = kept_fields(self.reply.headers)
        self._reader = SseReader(self.limit)

    @property
    def needs_request(self) -> bool:
        """See UpstreamReply."""
        return self.reply.needs_request

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply. Raises AnswerTooLarge for an event above the limit, behind all that came before it."""
        try:
            while True:
                for part in self._parts:
                    if piece := await self._edited(self._reader.feed(part)):
                        return piece
                chunk = await self.reply.read(read_timeout)
                self.observe(chunk)
                if not chunk:
                    self._finish()
                    return b""
                self._parts = iter(slices(chunk))
        except MessageTooLong:
            self.abort()
            raise too_large(self.limit) from None
        except BaseException:
            self.abort()
            raise

    async def _edited(self, events: Sequence[SseEvent]) -> bytes:
        leaving: list[bytes] = []
        for event in events:
            data = await self.edit(event.data) if event.data else event.data
            if data is event.data:
                leaving.append(event.raw)
            elif data is not None:
                leaving.append(replace_data(event, data))
        await breathe(len(events))
        return b"".join(leaving)

    def abort(self) -> None:
        """See UpstreamReply."""
        self.reply.abort()
        self._finish()

    def _finish(self) -> None:
        done, self.done = self.done, nothing
        done()


class GetStream:
    """A GET stream. It may be silent for ever and just ends when the upstream's does, as clients expect.

    ``observe`` sees what comes.
    """

    def __init__(self, reply: UpstreamReply, observe: Callable[[bytes], None] | None) -> None:
        self._reply = reply
        self._observe = observe
        self._end = b""

    def body(self) -> Flow:
        """The stream as it comes."""
        return Flow(self._pieces, self._pour)

    async def last_words(self, _: AdapterError) -> bytes:
        """Tell the client to come back in a while, behind an event that may have begun."""
        return last_words_behind(self._end)

    def _look(self, chunk: bytes) -> None:
        self._end = chunk[-_SEAM:] if len(chunk) >= _SEAM else (self._end + chunk)[-_SEAM:]
        if self._observe is not None:
            self._observe(chunk)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await self._reply.read(None):
                self._look(chunk)
                yield chunk
        except (UpstreamBroken, AnswerTooLarge):
            return
        finally:
            self._reply.abort()

    async def _pour(self, sink: Sink) -> None:
        try:
            await pour(self._reply, WatchedSink(sink, self._look), None)
        except (UpstreamBroken, AnswerTooLarge):
            return
        finally:
            self._reply.abort()


def last_words_behind(sent: bytes) -> bytes:
    """The ``retry:`` that ends a stream whose last bytes were ``sent`` (its last four at least).

    An event of which only a part was sent becomes one of a type that no client knows, for what is sent cannot be taken
    back; clients dispatch only the type "message".
    """
    line = sent.removesuffix(b"\n").removesuffix(b"\r") if sent.endswith(b"\r\n") else sent[:-1]
    if not sent or (sent[-1] in _LINE_ENDS and (not line or line[-1] in _LINE_ENDS)):
        return RETRY
    return (b"" if sent[-1] in _LINE_ENDS else b"\n") + b"event: torn\n" + RETRY
