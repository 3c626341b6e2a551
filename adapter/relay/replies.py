"""Reading an upstream's answer to its end: for initialize, for probes, and for what stages change."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from adapter.errors import AdapterError, AnswerTooLarge, BadJson, MessageTooLong, UpstreamBroken
from adapter.relay.background import breathe, in_turns, own_turn, slices
from adapter.rules.access.headers import SharedFields
from adapter.upstream.port import Headers, UpstreamReply, WholeReply, header, pour
from adapter.wire.envelope import answers, read_response, response_in
from adapter.wire.long_messages import MOST_VALUES, parsed
from adapter.wire.outline import TooManyItems, responds
from adapter.wire.piecewise import one_piece
from adapter.wire.spans import MessagePieces, items
from adapter.wire.sse import SseEvent, SseReader, replace_data

LIST = "tools/list"

LARGE = 1 << 18
"""Bytes of a message that are parsed at once, in some milliseconds."""

LONG = 1 << 20
"""Bytes of a message that are parsed in a turn of its own, in up to twenty milliseconds."""


async def is_response(data: bytes, request_id: str | int | float | None) -> bool:
    """As ``envelope.answers``; a large message is looked through in turns, and its result not read."""
    if len(data) <= LARGE:
        return answers(data, request_id)
    return await in_turns(responds(data, request_id))


async def long_response_to(data: bytes, request_id: str | int | float | None) -> dict[str, Any] | None:
    """As ``envelope.response_in``, for a large message. Raises AnswerTooLarge for one with too many values."""
    if len(data) <= LONG:
        await own_turn()
        return response_in(data, request_id)
    try:
        return response_in(data, request_id, await long_value(data))
    except BadJson:
        return None


async def long_value(data: bytes) -> Any:
    """The JSON value of a long message, parsed in turns. Raises BadJson, and AnswerTooLarge for too many values."""
    try:
        return await in_turns(parsed(data))
    except TooManyItems:
        raise AnswerTooLarge(
            f"The upstream server's answer has {len(data)} bytes and more than the {MOST_VALUES} values that "
            "stages read of one so long."
        ) from None


async def edited(data: bytes, work: Callable[[], bytes]) -> bytes:
    """Do ``work``, which looks through a message; beside the loop and in its turn where the message is large."""
    return work() if len(data) <= LARGE else await in_turns(one_piece(work, len(data)))


ANSWER_LIMIT = 48 << 20
"""Bytes of an answer that are read unless ``core.upstream.max_answer_bytes`` says otherwise. Piped answers have no
limit: they are never held. To copy as many takes some thirty milliseconds, which is the longest turn of the loop.
"""

DISCARDED = 64 << 10
"""Bytes of an answer that are read only so that its connection can serve again."""

EVENT_STREAM = "text/event-stream"

RESUMPTIONS = 100
"""Streams that one answer is followed over; a server that polls on is taken for one that never answers."""

Resume = Callable[[bytes, int | None], Awaitable[UpstreamReply | None]]
"""The stream after this event id, waiting as many milliseconds as the upstream asked for."""

FRAMING = frozenset({"content-length", "transfer-encoding", "content-encoding", "mcp-session-id"})
"""Fields (lower case) of an answer that do not hold for the one that is made of it."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """``raw`` is the body as it came, over all streams it came on; ``response`` the final JSON-RPC message.

    ``event`` is the last of ``raw`` where the response came as an event.
    """

    raw: bytes
    response: bytes | None
    event: SseEvent | None = None

    def with_response(self, response: bytes | None) -> bytes:
        """``raw`` with another response in place of the one it has; of a body that came without a coding."""
        if response is None or response is self.response:
            return self.raw
        if self.event is None:
            return response
        return self.raw[: -len(self.event.raw)] + replace_data(self.event, response)


def kept_fields(headers: Headers) -> SharedFields:
    """The fields of an answer that also hold when its body was edited. Shared ones give the same each time."""
    derived = headers.derived if type(headers) is SharedFields else {}
    found: SharedFields | None = derived.get(kept_fields)
    if found is None:
        fields = [field for field in headers if field[0].lower() not in FRAMING]
        found = derived[kept_fields] = SharedFields(fields)
    return found


def media_type(headers: Headers) -> str:
    """The type of an answer's body without its parameters, in lower case; empty where there is none."""
    known = headers.derived if type(headers) is SharedFields else {}
    kind: str | None = known.get(media_type)
    if kind is None:
        kind = known[media_type] = (header(headers, "content-type") or "").partition(";")[0].strip().lower()
    return kind


def is_encoded(headers: Headers) -> bool:
    """Tell whether the body of an answer with these fields has a content coding."""
    known = headers.derived if type(headers) is SharedFields else {}
    encoded: bool | None = known.get(is_encoded)
    if encoded is None:
        coding = (header(headers, "content-encoding") or "identity").strip().lower()
        encoded = known[is_encoded] = coding != "identity"
    return encoded


def require_plain(reply: UpstreamReply) -> None:
    """Raise UpstreamBroken for a compressed event stream: it must not pass by the stages that read it."""
    if is_encoded(reply.headers):
        reply.abort()
        raise UpstreamBroken("The upstream server compressed a stream although no compression was requested.")


def too_large(limit: int) -> AnswerTooLarge:
    """The failure of an answer, or of one event, above ``limit`` bytes."""
    return AnswerTooLarge(
        f"The upstream server's answer is larger than the {limit} bytes that core.upstream.max_answer_bytes allows."
    )


async def read_body(reply: UpstreamReply, read_timeout: float | None, limit: int = ANSWER_LIMIT) -> bytes:
    """The whole body as it came. Raises AnswerTooLarge above ``limit`` bytes, UpstreamBroken, UpstreamSilent."""
    if reply.whole is not None and len(reply.whole) <= limit:
        return reply.whole
    return await joined(await read_pieces(reply, read_timeout, limit))


async def read_pieces(reply: UpstreamReply, read_timeout: float | None, limit: int) -> MessagePieces:
    """As ``read_body``, in the pieces that came."""
    if reply.whole is not None and len(reply.whole) <= limit:
        return MessagePieces([reply.whole])
    chunks = _Chunks(limit)
    try:
        await pour(reply, chunks, read_timeout)
    finally:
        reply.abort()
    return MessagePieces(chunks.pieces)


class _Chunks:
    """A Sink that keeps what comes. Raises AnswerTooLarge above ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.pieces: list[bytes] = []
        self._limit = self._left = limit

    def put(self, chunk: bytes, *, more: bool = False) -> bool:  # noqa: ARG002 (the port's: nothing is held back)
        self._left -= len(chunk)
        if self._left < 0:
            raise too_large(self._limit)
        self.pieces.append(chunk)
        return True

    async def drained(self) -> None:
        """See Sink."""


async def joined(message: MessagePieces) -> bytes:
    """A message in one piece."""
    if message.size > LARGE:
        # Many may come to their end at once, and each copies megabytes.
        await own_turn()
    return message.joined()


async def discard(reply: UpstreamReply, read_timeout: float | None) -> None:
    """Read an answer of which only the status counts, so that its connection can serve again; drop a long or broken
    one with its connection.
    """
    size = 0
    try:
        while size <= DISCARDED and (chunk := await reply.read(read_timeout)):
            size += len(chunk)
    except AdapterError:
        return
    finally:
        reply.abort()


async def with_result(
    reply: UpstreamReply, request_ids: Collection[str | int | float | None], read_timeout: float
) -> UpstreamReply | None:
    """The same reply read to its end, where it is JSON with the result of one of these requests; else None, and its
    connection is dropped.

    An answer that is longer than DISCARDED bytes, or takes longer than ``read_timeout`` seconds, is none.
    """
    try:
        async with asyncio.timeout(read_timeout):
            raw = await read_body(reply, read_timeout, DISCARDED)
        body = decoded(raw, reply, DISCARDED)
    except (AdapterError, TimeoutError):
        return None
    for response in map(read_response, messages_in(body)):
        if response is not None and "result" in response.message and response.id in request_ids:
            return WholeReply(reply.status, reply.headers, raw)
    return None


def messages_in(data: bytes) -> list[bytes]:
    """The JSON-RPC messages of a body or an event: one, or those of a batch (MCP 2025-03-26)."""
    if data.lstrip()[:1] != b"[":
        return [data]
    try:
        return [data[start:end] for start, end in items(data)]
    except ValueError:
        return [data]


def decoded(body: bytes, reply: UpstreamReply, limit: int = ANSWER_LIMIT) -> bytes:
    """``body`` without its content coding. Raises UpstreamBroken on one that was not asked for or is damaged, and
    AnswerTooLarge above ``limit`` bytes.
    """
    coding = (header(reply.headers, "content-encoding") or "identity").strip().lower()
    if coding == "identity":
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise UpstreamBroken("The upstream server used a Content-Encoding that was not requested.")
    try:
        inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        plain = inflater.decompress(body, limit)
    except zlib.error as error:
        raise UpstreamBroken("The upstream server's compressed answer is damaged.") from error
    if inflater.unconsumed_tail:
        raise too_large(limit)
    if not inflater.eof or inflater.unused_data:
        raise UpstreamBroken("The upstream server's compressed answer is not exactly one complete stream.")
    return plain


async def read_answer(
    reply: UpstreamReply,
    request_id: str | int | float | None,
    read_timeout: float | None,
    resume: Resume,
    limit: int = ANSWER_LIMIT,
    *,
    keeps_raw: bool = True,
    plain: bool = False,
    between: Callable[[bytes], Awaitable[None]] | None = None,
) -> WholeAnswer:
    """Everything up to and with the response to ``request_id``, following a stream that polls.

    Without ``keeps_raw`` the events of a stream are forgotten and ``raw`` is empty: nobody but the adapter reads what
    comes for requests of its own. ``between`` is given the data of each event before the response; what it has been
    given is not counted, as that is piped. ``plain`` refuses a compressed stream, which would be read whole.

    Raises AnswerTooLarge where all of that, or one event, is above ``limit`` bytes; UpstreamBroken where no response
    can be had; UpstreamSilent.
    """
    if (kind := media_type(reply.headers)) != EVENT_STREAM or is_encoded(reply.headers):
        if plain and kind == EVENT_STREAM:
            require_plain(reply)
        raw = reply.whole
        if raw is None or len(raw) > limit:
            raw = await read_body(reply, read_timeout, limit)
        body = decoded(raw, reply, limit) if is_encoded(reply.headers) else raw
        if kind != EVENT_STREAM:
            return WholeAnswer(raw, body if await is_response(body, request_id) else None)
        return WholeAnswer(raw, await _response_on(body, request_id))
    seen, left, last_id = bytearray(), limit, b""
    for _ in range(RESUMPTIONS):
        reader = SseReader(limit)
        reader.last_id = last_id
        try:
            async with aclosing(events_of(reply, reader, read_timeout)) as events:
                async for event in events:
                    left -= len(event.raw)
                    # Of blank lines each byte is an event, so they are not kept as such.
                    seen += event.raw if keeps_raw else b""
                    if event.data and await is_response(event.data, request_id):
                        return WholeAnswer(bytes(seen), event.data, event)
                    if event.data and between is not None:
                        await between(event.data)
                        left += 0 if keeps_raw else len(event.raw)
                    if left < 0:
                        raise too_large(limit)
        except UpstreamBroken:
            if not reader.last_id:
                raise
        if not reader.last_id or reader.last_id == last_id:
            raise UpstreamBroken("The upstream server ended its answer without a response.")
        last_id = reader.last_id
        rest = await resume(last_id, reader.retry)
        if rest is None:
            raise UpstreamBroken("The upstream server's answer broke off and could not be resumed.")
        reply = rest
    reply.abort()
    raise UpstreamBroken("The upstream server deferred its answer too often.")


async def events_of(
    reply: UpstreamReply, reader: SseReader, read_timeout: float | None
) -> AsyncGenerator[SseEvent, None]:
    """The events of a stream as they come, which is dropped at the end. Raises what reading it raises, and
    AnswerTooLarge for an event above the reader's limit, behind all that came before it.
    """
    try:
        while chunk := await reply.read(read_timeout):
            for part in slices(chunk):
                events = reader.feed(part)
                for event in events:
                    yield event
                await breathe(len(events))
    except MessageTooLong:
        raise too_large(reader.limit) from None
    finally:
        reply.abort()


async def _response_on(body: bytes, request_id: str | int | float | None) -> bytes | None:
    """The same of a whole stream."""
    async with aclosing(events_of(WholeReply(200, [], body), SseReader(len(body)), None)) as events:
        async for event in events:
            if event.data and await is_response(event.data, request_id):
                return event.data
    return None
