"""Reading events that may be very many: a stream of blank lines has one in each byte.

A piece of a stream is read in slices, and after a slice with many events everybody else gets a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

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


APART = 64 << 10
"""Bytes from which on a message is edited in a thread: walking through so many brackets takes some 20 ms."""


async def apart(size: int, work: Callable[[], T]) -> T:
    """Do ``work`` on a message of so many bytes; where it is a long one, beside the loop."""
    return work() if size <= APART else await asyncio.to_thread(work)
