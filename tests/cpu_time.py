"""CPU of a piece of work, in the process of a test."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ATTEMPTS = 3
"""Machines have other work; what takes long takes long each time."""


def least_cpu(work: Callable[[], object], attempts: int = ATTEMPTS) -> float:
    """Seconds of CPU of the cheapest of some runs, without the collector: it would look through all of the process."""
    gc.disable()
    try:
        return min(_cpu(work) for _ in range(attempts))
    finally:
        gc.enable()


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
