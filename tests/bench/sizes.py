"""The sizes that a benchmark compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The sizes that are compared, each in ``rounds``: connections of clients with a call under way on each, tools
    of an upstream, stored sessions, and open GET streams.
    """

    rounds: int
    connections: tuple[int, ...]
    tools: tuple[int, ...]
    sessions: int
    streams: int
