"""CPU of a piece of work, in the process of a test, told in seconds of an idle core.

A core that two programs share, or that is slow, gives less for each second. So a fixed piece of work is measured around
each of those that are judged, and tells how much slower the core is at that moment.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator

ATTEMPTS = 5
"""Machines have other work; what takes long takes long each time."""

PACE = 0.0025
"""Seconds of CPU that the fixed work takes where nothing else runs."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """The body takes no more CPU than that."""
    before, began = slowness(), time.process_time()
    yield
    taken = time.process_time() - began
    assert taken / max(before, slowness(), 1.0) < seconds


def least_cpu(work: Callable[[], object], attempts: int = ATTEMPTS) -> float:
    """Seconds of CPU of the cheapest of some runs, without the collector: it would look through all of the process."""
    gc.disable()
    try:
        return min(_cpu(work) for _ in range(attempts))
    finally:
        gc.enable()


def _cpu(work: Callable[[], object]) -> float:
    before, began = slowness(), time.process_time()
    work()
    taken = time.process_time() - began
    return taken / max(min(before, slowness()), 1.0)


def slowness() -> float:
    """Tell how many times slower the core is than an idle one, at this moment."""
    began, counts = time.process_time(), [0] * 64
    for number in range(40_000):
        counts[number & 63] += number
    return (time.process_time() - began) / PACE
