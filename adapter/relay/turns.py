"""Long work on the loop, in turns so short that nobody else has to wait for it.

A thread would not do: what is computed holds the interpreter, so the loop would get each of its turns up to five
milliseconds late, and one call of a parser for megabytes would hold it for all of that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from adapter.wire.nesting import values_at_most
from adapter.wire.piecewise import Apart, Piecewise

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


T = TypeVar("T")

TURN = 0.001
"""Seconds of one turn, but for the piece that is under way then."""

SHORT = TURN / 4
"""Seconds of a last turn behind which another may follow at once."""


class _Queues(NamedTuple):
    """The locks of one loop: for a turn on it, and for a thread. At most one task has each, the others wait."""

    turn: asyncio.Lock
    thread: asyncio.Lock


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queues] = WeakKeyDictionary()
"""By loop, since it is the loop's time that is shared out."""


async def in_turns(work: Piecewise[T]) -> T:
    """The outcome of ``work``, after as many turns as it takes. Raises what the work raises.

    However many works are under way, the loop has one turn of theirs before it looks after all others again.
    """
    queues = _of_this_loop()
    go_on: Callable[[], Apart | None] = partial(work.send, None)
    while True:
        async with queues.turn:
            began = time.perf_counter()
            try:
                piece = go_on()
                while piece is None and time.perf_counter() - began < TURN:
                    piece = work.send(None)
            except StopIteration as end:
                if time.perf_counter() - began > SHORT:
                    await asyncio.sleep(0)
                outcome: T = end.value
                return outcome
            # Within the lock, so that nobody else has the next turn before the loop has looked after all others.
            await asyncio.sleep(0)
        go_on = partial(work.send, None)
        if piece is not None:
            async with queues.thread:
                go_on = await asyncio.to_thread(_done, work, piece)


async def own_turn() -> None:
    """Wait for a turn, for what cannot be cut and takes some milliseconds: what follows has it to itself."""
    async with _of_this_loop().turn:
        await asyncio.sleep(0)


def _done(work: Piecewise[T], piece: Apart) -> Callable[[], Apart | None]:
    """Do the piece; how the work goes on with what came of it."""
    try:
        return partial(work.send, piece.work())
    except Exception as error:
        return partial(work.throw, error)


def _of_this_loop() -> _Queues:
    loop = asyncio.get_running_loop()
    queues = _queues.get(loop)
    if queues is None:
        queues = _queues[loop] = _Queues(asyncio.Lock(), asyncio.Lock())
    return queues
