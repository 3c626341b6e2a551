"""Reading an upstream's answer to its end: for initialize, for probes, and for what stages change."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from adapter.errors import UpstreamBroken
from adapter.relay.recognition import is_response
from adapter.upstream.port import UpstreamReply, header
from adapter.wire.sse import SseEvent, SseReader, replace_data

ANSWER_LIMIT = 64 << 20
"""Bytes of an answer that is read. Piped answers have no limit: they are never held."""

Resume = Callable[[bytes, int | None], Awaitable[UpstreamReply | None]]
"""The stream after this event id, waiting as many milliseconds as the upstream asked for."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """``raw`` is the body as it came, over all streams it came on; ``response`` the final JSON-RPC message.

    ``event`` is the last of ``raw`` where the response came as an event.
    """

    raw: bytes
    response: bytes | None
    event: SseEvent | None = None

    def changed(self, change: Callable[[bytes], bytes]) -> bytes:
        """``raw`` with another response in place of the one it has; of a body that came without a coding."""
        if self.response is None:
            return self.raw
        response = change(self.response)
        if response is self.response:
            return self.raw
        if self.event is None:
            return response
        return self.raw[: -len(self.event.raw)] + replace_data(self.event, response)


def media_type(reply: UpstreamReply) -> str:
    """The type of the answer's body without its parameters, in lower case; empty where there is none."""
    return (header(reply.headers, "content-type") or "").partition(";")[0].strip().lower()


def is_encoded(reply: UpstreamReply) -> bool:
    return (header(reply.headers, "content-encoding") or "identity").strip().lower() != "identity"


def require_plain(reply: UpstreamReply) -> None:
    """Raise UpstreamBroken for a compressed event stream: it must not pass by the stages that read it."""
    if is_encoded(reply):
        reply.abort()
        raise UpstreamBroken("The upstream server compressed a stream that was asked for uncompressed.")


async def read_body(reply: UpstreamReply, silence: float | None, limit: int = ANSWER_LIMIT) -> bytes:
    """The whole body as it came. Raises UpstreamBroken, also above ``limit`` bytes, and UpstreamSilent."""
    if reply.whole is not None:
        return reply.whole
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := await reply.read(silence):
            size += len(chunk)
            if size > limit:
                raise UpstreamBroken(f"The upstream server's answer is larger than {limit} bytes.")
            chunks.append(chunk)
    finally:
        reply.abort()
    return b"".join(chunks)


def decoded(body: bytes, reply: UpstreamReply, limit: int = ANSWER_LIMIT) -> bytes:
    """``body`` without its content coding. Raises UpstreamBroken on one that was not asked for or is damaged."""
    coding = (header(reply.headers, "content-encoding") or "identity").strip().lower()
    if coding == "identity":
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise UpstreamBroken("The upstream server encoded its answer in a way that was not asked for.")
    try:
        inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        plain = inflater.decompress(body, limit)
    except zlib.error as error:
        raise UpstreamBroken("The upstream server's compressed answer is damaged.") from error
    if inflater.unconsumed_tail:
        raise UpstreamBroken(f"The upstream server's answer is larger than {limit} bytes.")
    if not inflater.eof or inflater.unused_data:
        raise UpstreamBroken("The upstream server's compressed answer is not exactly one complete stream.")
    return plain


async def read_answer(
    reply: UpstreamReply, request_id: str | int | float | None, silence: float | None, resume: Resume
) -> WholeAnswer:
    """Everything up to and with the response to ``request_id``, following a stream that polls.

    Raises UpstreamBroken where no response can be had, UpstreamSilent.
    """
    if media_type(reply) != "text/event-stream" or is_encoded(reply):
        raw = await read_body(reply, silence)
        return WholeAnswer(raw, await _response_in(decoded(raw, reply), media_type(reply), request_id))
    raw = b""
    last_id = b""
    while True:
        reader = SseReader(ANSWER_LIMIT)
        reader.last_id = last_id
        piece, event = await _read_events(reply, reader, request_id, silence)
        raw += piece
        if event is not None:
            return WholeAnswer(raw, event.data, event)
        if not reader.last_id or reader.last_id == last_id:
            raise UpstreamBroken("The upstream server ended its answer without a response.")
        last_id = reader.last_id
        rest = await resume(last_id, reader.retry)
        if rest is None:
            raise UpstreamBroken("The upstream server's answer broke off and could not be resumed.")
        reply = rest


async def _read_events(
    reply: UpstreamReply, reader: SseReader, request_id: str | int | float | None, silence: float | None
) -> tuple[bytes, SseEvent | None]:
    """Whole events up to and with the response, as they came, and the response's; None if it did not come."""
    events: list[bytes] = []
    try:
        while chunk := await reply.read(silence):
            for event in reader.feed(chunk):
                events.append(event.raw)
                if event.data and await is_response(event.data, request_id):
                    return b"".join(events), event
    except UpstreamBroken:
        if not reader.last_id:
            raise
    finally:
        reply.abort()
    return b"".join(events), None


async def _response_in(body: bytes, kind: str, request_id: str | int | float | None) -> bytes | None:
    if kind != "text/event-stream":
        return body if await is_response(body, request_id) else None
    for event in SseReader(ANSWER_LIMIT).feed(body):
        if event.data and await is_response(event.data, request_id):
            return event.data
    return None
