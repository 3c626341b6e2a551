"""Times that wait to be counted: those of a kind are counted together, for a fraction of what each would cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

MOST_WAITING = 512
"""Times of one kind that wait, and kinds."""

COUNTED_AT_ONCE = 16
"""Kinds that make room for others together. The first of a kind takes half a millisecond where workers share files."""

Kind = TypeVar("Kind", bound=Hashable)


class WaitingTimes(Generic[Kind]):
    """The times that wait, in seconds by kind, and by kind the ids of their traces where traces are recorded.

    ``count`` is given a kind with its times and traces, which it may not keep. Code that runs for each call adds to
    what it finds in ``seconds`` itself, which saves a Python call.
    """

    __slots__ = ("_count", "_failure", "seconds", "traces")

    def __init__(self, count: Callable[[Kind, Sequence[float], Sequence[str]], None]) -> None:
        self.seconds: dict[Kind, list[float]] = {}
        self.traces: dict[Kind, list[str]] = {}
        self._count = count
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<WaitingTimes of {len(self.seconds)} kinds>"

    def add(self, kind: Kind, seconds: float, trace: str | None = None) -> None:
        """Have a time wait; where there is no room for it, what waits longest is counted. Raises nothing.

        ``trace`` is the id of its trace, "" outside of any, and None where no traces are recorded.
        """
        alike = self.seconds.setdefault(kind, [])
        alike.append(seconds)
        if trace is not None:
            self.traces.setdefault(kind, []).append(trace)
        if len(alike) >= MOST_WAITING:
            self._hand_over(kind)
        elif len(self.seconds) >= MOST_WAITING:
            # Some of them, not all: a call that brings one kind too many does not pay for all others.
            for oldest in tuple(islice(self.seconds, COUNTED_AT_ONCE)):
                if self.seconds[oldest]:
                    self._hand_over(oldest)
                del self.seconds[oldest]

    def flush(self) -> Iterator[None]:
        """Count what waits, kind by kind; the caller may let others have their turns in between.

        Raises, when all is counted, the last error that counting has raised since the time before.
        """
        for kind in tuple(self.seconds):
            if self.seconds.get(kind):
                self._hand_over(kind)
                yield
            else:
                # Since the last time there was none of this kind.
                self.seconds.pop(kind, None)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _hand_over(self, kind: Kind) -> None:
        alike, traces = self.seconds[kind], self.traces.pop(kind, [])
        try:
            # Of traces that belong to some of the times nobody knows to which.
            self._count(kind, alike, traces if len(traces) == len(alike) else ())
        except Exception as error:
            # A call that brings a time must not fail because others cannot be counted.
            self._failure = error
        finally:
            alike.clear()
