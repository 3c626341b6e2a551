"""GET streams on their way from the upstream to the client, where they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from adapter.errors import MessageTooLong, UpstreamBroken
from adapter.relay.event_slices import breathe, slices
from adapter.relay.notifications import Inbox
from adapter.upstream.port import UpstreamReply
from adapter.wire.sse import SseReader, replace_data


async def listening(
    reply: UpstreamReply,
    rewrite: Callable[[bytes], Awaitable[bytes]],
    limit: int,
    observe: Callable[[bytes], None] | None = None,
) -> AsyncGenerator[bytes, None]:
    """A GET stream that leaves event by event, each event's data passing through ``rewrite``.

    It may be silent for ever and just ends when the upstream's does, as clients expect. ``observe`` sees what comes.
    """
    reader = SseReader(limit)
    try:
        while chunk := await reply.read(None):
            if observe is not None:
                observe(chunk)
            for part in slices(chunk):
                events = reader.feed(part)
                leaving: list[bytes] = []
                for event in events:
                    data = await rewrite(event.data) if event.data else event.data
                    leaving.append(
                        event.raw if data is event.data or data is None else replace_data(event, data)
                    )
                if leaving:
                    yield b"".join(leaving)
                await breathe(len(events))
    except (UpstreamBroken, MessageTooLong):
        return
    finally:
        reply.abort()


async def noticing(stream: AsyncGenerator[bytes, None], inbox: Inbox) -> AsyncGenerator[bytes, None]:
    """A stream of whole events, with what comes into ``inbox`` put between them."""
    reading = asyncio.ensure_future(anext(stream, b""))
    noticed = asyncio.ensure_future(inbox.take())
    try:
        while True:
            await asyncio.wait((reading, noticed), return_when=asyncio.FIRST_COMPLETED)
            if noticed.done():
                yield noticed.result()
                noticed = asyncio.ensure_future(inbox.take())
            if reading.done():
                if not (piece := reading.result()):
                    return
                yield piece
                reading = asyncio.ensure_future(anext(stream, b""))
    finally:
        for task in (reading, noticed):
            task.cancel()
        await asyncio.gather(reading, noticed, return_exceptions=True)
        await stream.aclose()
