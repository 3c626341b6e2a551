"""Work over much data, cut into pieces so short that others have their turn between two of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

LARGE = 1 << 15
"""Bytes of data that are too much to be looked into in one piece, at up to a microsecond for each of them."""


class Apart(NamedTuple):
    """A piece that may take long by itself: who drives the work may do it in a thread, and sends what it returned."""

    work: Callable[[], Any]


Piecewise = Generator[Apart | None, Any, T]
"""Yields after each piece: None, or a piece that is to be done apart. What it returns is the outcome."""


def one_piece(work: Callable[[], T], size: int) -> Piecewise[T]:
    """Do ``work``, which looks into ``size`` bytes, in one piece; apart if they are many. Raises what it raises."""
    outcome: T
    if size > LARGE:
        outcome = yield Apart(work)
        return outcome
    outcome = work()
    yield None
    return outcome


def at_once(work: Piecewise[T]) -> T:
    """Do all pieces without a pause. Raises what the work raises."""
    go_on: Callable[[], Apart | None] = partial(work.send, None)
    while True:
        try:
            piece = go_on()
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        if piece is None:
            go_on = partial(work.send, None)
            continue
        try:
            go_on = partial(work.send, piece.work())
        except Exception as error:
            go_on = partial(work.throw, error)
