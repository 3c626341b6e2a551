"""Waiting for a descriptor that no transport watches."""

from __future__ import annotations

import asyncio


async def until_ready(number: int, seconds: float, *, writing: bool = False) -> bool:
    """Wait until bytes can be read from the descriptor, or written to it; False if not within ``seconds``."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    watch, forget = (
        (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    )
    watch(number, _end, ready, True)
    # Not asyncio.timeout: it costs as much as the rest.
    late = loop.call_later(seconds, _end, ready, False)
    try:
        return await ready
    finally:
        late.cancel()
        forget(number)


def _end(waiting: asyncio.Future[bool], ready: bool) -> None:
    if not waiting.done():
        waiting.set_result(ready)
