"""Reading events that may be very many: a stream of blank lines has one in each byte.

A piece of a stream is read in slices, and after a slice with many events everybody else gets a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from adapter.wire.weight import values_at_most

T = TypeVar("T")

SLICE = 4096
"""Bytes that are read without a pause; what they may hold at most takes about ten milliseconds."""

MANY = 64
"""Events of one slice after which others get a turn."""


def slices(piece: bytes) -> Sequence[bytes]:
    """``piece`` in parts that are read at once; most pieces are one."""
    if len(piece) <= SLICE:
        return (piece,)
    return [piece[start : start + SLICE] for start in range(0, len(piece), SLICE)]


async def breathe(events: int) -> None:
    """Give others a turn after so many events."""
    if events > MANY:
        await asyncio.sleep(0)


LIGHT = 4000
"""Values of a message that is read and edited at once; it takes some milliseconds."""

_SHORT = 4096
_LONG = 1 << 20

_reading = ThreadPoolExecutor(1, thread_name_prefix="messages")
"""One message at a time, so that the loop shares its processor with one thread only."""


async def apart(text: bytes, work: Callable[[], T]) -> T:
    """Do ``work`` on a message; beside the loop, in its turn, where that is long or holds many values."""
    if len(text) <= _SHORT or (len(text) <= _LONG and values_at_most(text) <= LIGHT):
        return work()
    return await asyncio.get_running_loop().run_in_executor(_reading, work)
