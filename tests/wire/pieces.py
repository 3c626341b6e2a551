"""Streams cut into pieces, and work done piece by piece: how long its pieces take."""

from __future__ import annotations

import gc
import time
from typing import Any, TypeVar

from adapter.wire.piecewise import Piecewise
from tests.cpu_time import slowness

T = TypeVar("T")

LONGEST = 0.05
"""Seconds of CPU that one piece may take; nothing may hold the loop for longer."""


def sliced(stream: bytes, steps: list[int]) -> list[bytes]:
    """The stream in pieces of these sizes, again and again."""
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        step = steps[len(pieces) % len(steps)]
        pieces.append(stream[at : at + step])
        at += step
    return pieces


def timed(work: Piecewise[T], longest: float = LONGEST) -> T:
    """The outcome of a work, none of whose pieces takes long; those that are done apart do not count."""
    # What else the test's process holds would be looked through in some piece or other.
    gc.disable()
    try:
        return _timed(work, longest)
    finally:
        gc.enable()


def _timed(work: Piecewise[T], longest: float) -> T:
    done: Any = None
    while True:
        began = time.thread_time()
        try:
            piece = work.send(done)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        finally:
            taken = time.thread_time() - began
            assert taken < longest or taken / slowness() < longest
        done = None if piece is None else piece.work()
