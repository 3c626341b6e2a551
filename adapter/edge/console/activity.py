"""Calls and errors over the last hour, for the overview: of all replicas that answer, or a viewer's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from adapter.edge.console.status import Viewer
from adapter.relay.http_api.past_exchange import PastExchange
from adapter.relay.http_api.recent_exchanges import KEPT, Recent
from adapter.rules.calls.request_outcomes import MinuteCount, MinuteCounts, hour

if TYPE_CHECKING:
    # Only a process among several has them.
    from adapter.relay.http_api.shared_exchanges import SharedExchanges
    from adapter.relay.replicas.registry import Replicas


class Activity:
    """Counts for viewers. ``shared`` and ``replicas`` are None where no other process uses the store."""

    def __init__(
        self,
        recent: Recent,
        shared: SharedExchanges | None = None,
        replicas: Replicas | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._recent = recent
        self._shared = shared
        self._replicas = replicas
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Activity of {self._recent!r}>"

    async def told(self, viewer: Viewer) -> dict[str, Any]:
        """The counts of the last hour as JSON. An operator sees those of all; a viewer those of its own exchanges, as
        far as they are among the last that are kept here.
        """
        if viewer.whose is not None:
            return self._own(viewer.whose)
        now = self._clock()
        counts, begun = self._recent.counts.last(now), self._recent.counts.begun
        heard: list[str] = []
        expected = [] if self._replicas is None else [other.id for other in self._replicas.others()]
        if self._shared is not None:
            others = await self._shared.counts_of_others(expected)
            heard = sorted(others)
            counts += [each for one in others.values() for each in one]
        return {
            "whose": "all",
            "since": begun,
            "minutes": _told(counts, now),
            "replica": None if self._shared is None else self._shared.replica,
            "heard": heard,
            "silent": sorted(set(expected) - set(heard)),
        }

    def _own(self, whose: str) -> dict[str, Any]:
        now, kept = self._clock(), self._recent.last()
        oldest = kept[-1].at if len(kept) == KEPT else self._recent.counts.begun
        own = [each for each in kept if each.principal == whose]
        return {
            "whose": "own",
            "since": oldest,
            "minutes": _told(_counted(own, oldest).last(now), now),
            "replica": None if self._shared is None else self._shared.replica,
            "heard": [],
            "silent": [] if self._replicas is None else [other.id for other in self._replicas.others()],
        }


def _counted(exchanges: Iterable[PastExchange], since: float) -> MinuteCounts:
    counts = MinuteCounts(since)
    for each in exchanges:
        counts.count(each.at, is_call=each.method == "tools/call", failed=each.failed)
    return counts


def _told(counts: Iterable[MinuteCount], now: float) -> list[list[int]]:
    return [[each.minute * 60, each.calls, each.others, each.failed] for each in hour(counts, now)]
