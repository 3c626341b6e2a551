"""Times that wait to be counted: those of a kind are counted together, for a fraction of what each would cost."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

MOST_WAITING = 512
"""Times of one kind that wait, and kinds."""

Kind = TypeVar("Kind", bound=Hashable)


class WaitingTimes(Generic[Kind]):
    """The times that wait, in seconds by kind, and by kind the ids of their traces where traces are recorded.

    Code that runs for each call adds to what it finds in ``seconds`` itself, which saves a Python call.
    """

    __slots__ = ("seconds", "traces")

    def __init__(self) -> None:
        self.seconds: dict[Kind, list[float]] = {}
        self.traces: dict[Kind, list[str]] = {}

    def __repr__(self) -> str:
        return f"<WaitingTimes of {len(self.seconds)} kinds>"

    def add(self, kind: Kind, seconds: float, trace: str | None = None) -> bool:
        """Have a time wait. Returns True if all should be taken now.

        ``trace`` is the id of its trace, "" outside of any, and None where no traces are recorded.
        """
        alike = self.seconds.setdefault(kind, [])
        alike.append(seconds)
        if trace is not None:
            self.traces.setdefault(kind, []).append(trace)
        return len(alike) >= MOST_WAITING or len(self.seconds) >= MOST_WAITING

    def take(self) -> Iterator[tuple[Kind, list[float], Sequence[str]]]:
        """Return each kind with its times and their traces, which wait no more once the next one is asked for."""
        crowded = len(self.seconds) >= MOST_WAITING
        for kind, alike in tuple(self.seconds.items()):
            if alike:
                yield kind, alike, self.traces.pop(kind, ())
                alike.clear()
            else:
                # Since the last time there was none of this kind.
                del self.seconds[kind]
        if crowded:
            self.seconds.clear()
