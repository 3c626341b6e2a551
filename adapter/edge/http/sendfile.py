"""Files sent by the kernel itself: their bytes never come into this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from adapter.edge.http.request import ClientGone, Sendable

AT_ONCE = 4 * 1024 * 1024
"""Bytes for which one hop to a thread costs nothing that shows beside sending them."""


async def send_file(
    transport: asyncio.Transport,
    drained: Callable[[], Awaitable[None]],
    file: Sendable,
    offset: int,
    length: int,
    stall: float,
) -> None:
    """Send ``length`` bytes of a file behind what was written to ``transport`` before.

    Waits while the client is slow. Raises ClientGone, also for one that takes nothing for ``stall`` seconds, and
    StorageFailed.
    """
    await _emptied(transport, drained)
    # One of our own: the transport's number is the loop's to watch, and another socket's once it has closed.
    receiver = os.dup(transport.get_extra_info("socket").fileno())
    try:
        end = offset + length
        while offset < end:
            asked = min(AT_ONCE, end - offset)
            sent = await file.send(receiver, offset, asked)
            offset += sent
            if sent < asked:
                await _writable(receiver, stall)
    except ConnectionError as error:
        raise ClientGone("the client has gone") from error
    finally:
        os.close(receiver)


async def _emptied(transport: asyncio.Transport, drained: Callable[[], Awaitable[None]]) -> None:
    """Nothing waits in the transport any more that would have to leave first."""
    _open(transport).set_write_buffer_limits(0)
    await drained()
    _open(transport).set_write_buffer_limits()


def _open(transport: asyncio.Transport) -> asyncio.Transport:
    # uvloop's refuses everything else once it closes, a moment before it tells its protocol.
    if transport.is_closing():
        raise ClientGone("the client has gone")
    return transport


async def _writable(number: int, stall: float) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(number, writable.set)
    try:
        async with asyncio.timeout(stall):
            await writable.wait()
    except TimeoutError:
        raise ClientGone("the client takes nothing of its file") from None
    finally:
        loop.remove_writer(number)
