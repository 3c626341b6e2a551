"""Answers that leave as they come, with nobody but a listener looking along."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial

from adapter.errors import UpstreamBroken
from adapter.relay.exchange import Flow
from adapter.upstream.port import Sink, UpstreamReply, pour


class Along:
    """A sink with somebody who looks at each chunk before it goes on."""

    __slots__ = ("_look", "_sink", "drained")

    def __init__(self, sink: Sink, look: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._look = look
        self.drained = sink.drained

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        self._look(chunk)
        return self._sink.put(chunk, more=more)


def piped(reply: UpstreamReply, silence: float | None, first: bytes = b"") -> Flow:
    """``first``, then the rest of an answer as it comes.

    Raises UpstreamBroken or UpstreamSilent where that breaks off.
    """
    return Flow(_piped(reply, silence, first), partial(_pour_piped, reply, silence, first))


async def _piped(reply: UpstreamReply, silence: float | None, first: bytes) -> AsyncGenerator[bytes, None]:
    try:
        if first:
            yield first
        while chunk := await reply.read(silence):
            yield chunk
    finally:
        reply.abort()


async def _pour_piped(reply: UpstreamReply, silence: float | None, first: bytes, sink: Sink) -> None:
    try:
        if first and not sink.put(first):
            await sink.drained()
        await pour(reply, sink, silence)
    finally:
        reply.abort()


def overheard(reply: UpstreamReply, heed: Callable[[bytes], None] | None) -> Flow:
    """A GET stream. It may be silent for ever and just ends when the upstream's does, as clients expect.

    ``heed`` sees what comes.
    """
    return Flow(_overheard(reply, heed), partial(_pour_overheard, reply, heed))


async def _overheard(
    reply: UpstreamReply, heed: Callable[[bytes], None] | None
) -> AsyncGenerator[bytes, None]:
    try:
        while chunk := await reply.read(None):
            if heed is not None:
                heed(chunk)
            yield chunk
    except UpstreamBroken:
        return
    finally:
        reply.abort()


async def _pour_overheard(reply: UpstreamReply, heed: Callable[[bytes], None] | None, sink: Sink) -> None:
    try:
        await pour(reply, sink if heed is None else Along(sink, heed), None)
    except UpstreamBroken:
        return
    finally:
        reply.abort()
