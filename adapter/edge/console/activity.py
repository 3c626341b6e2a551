"""Exchanges for viewers: calls and errors over the last hour, of all replicas that answer or a viewer's own, and the
stream of exchanges as they end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapter.edge.console.status import Viewer
from adapter.edge.http.request import Request
from adapter.edge.http.response import begin_stream
from adapter.relay.http_api.recent_exchanges import KEPT, News, PastExchange, Recent
from adapter.rules.calls.request_outcomes import MinuteCount, MinuteCounts, hour
from adapter.wire.envelope import dump

if TYPE_CHECKING:
    # Only a process among several has them.
    from adapter.relay.http_api.shared_exchanges import SharedExchanges
    from adapter.relay.replicas.registry import Replicas


@dataclass(eq=False, repr=False, slots=True)
class Activity:
    """Counts for viewers. ``shared`` and ``replicas`` are None where no other process uses the store."""

    recent: Recent
    shared: SharedExchanges | None = None
    replicas: Replicas | None = None
    clock: Callable[[], float] = time.time

    async def told(self, viewer: Viewer) -> dict[str, Any]:
        """The counts of the last hour as JSON. An operator sees those of all; a viewer those of its own exchanges, as
        far as they are among the last that are kept here.
        """
        if viewer.whose is not None:
            return self._own(viewer.whose)
        now = self.clock()
        counts, begun = self.recent.counts.last(now), self.recent.counts.begun
        heard: list[str] = []
        expected = [] if self.replicas is None else [other.id for other in self.replicas.others()]
        if self.shared is not None:
            others = await self.shared.counts_of_others(expected)
            heard = sorted(others)
            counts += [each for one in others.values() for each in one]
        return {
            "whose": "all",
            "since": begun,
            "minutes": _told(counts, now),
            "replica": None if self.shared is None else self.shared.replica,
            "heard": heard,
            "silent": sorted(set(expected) - set(heard)),
        }

    def _own(self, whose: str) -> dict[str, Any]:
        now, kept = self.clock(), self.recent.last()
        oldest = kept[-1].at if len(kept) == KEPT else self.recent.counts.begun
        own = [each for each in kept if each.principal == whose]
        return {
            "whose": "own",
            "since": oldest,
            "minutes": _told(_counted(own, oldest).last(now), now),
            "replica": None if self.shared is None else self.shared.replica,
            "heard": [],
            "silent": [] if self.replicas is None else [other.id for other in self.replicas.others()],
        }


def _counted(exchanges: Iterable[PastExchange], since: float) -> MinuteCounts:
    counts = MinuteCounts(since)
    for each in exchanges:
        counts.count(each.at, is_call=each.method == "tools/call", failed=each.failed)
    return counts


def _told(counts: Iterable[MinuteCount], now: float) -> list[list[int]]:
    return [[each.minute * 60, each.calls, each.others, each.failed] for each in hour(counts, now)]


# --- the stream of exchanges ------------------------------------------------------------------------------------

HEARTBEAT = 15.0
"""Seconds after which a stream without news says that it is still there."""

PACE = 0.05
"""Seconds between two pieces of a stream, so that many exchanges wake nobody for each of them."""


async def stream(request: Request, recent: Recent, viewer: Viewer, heartbeat: float = HEARTBEAT) -> None:
    """Send exchanges as they end, until the client goes or the adapter stops. Raises LimitReached, ClientGone.

    Events are ``exchange`` with one exchange as data, and ``lost`` with the number that a slow client missed. The
    stream of a viewer whose access token expires ends at the next event or heartbeat.
    """
    watcher = recent.subscribe(viewer.whose)
    try:
        begin_stream(request)
        await request.reply.write(b": exchanges\n\n")
        while (news := await watcher.next_news(heartbeat)) is not None:
            if viewer.expires is not None and viewer.expires <= time.time():
                break
            await request.reply.write(_events(news, viewer.principal))
            if news.exchanges:
                await asyncio.sleep(PACE)
        request.reply.end()
    finally:
        recent.unsubscribe(watcher)


def _events(news: News, reader: str) -> bytes:
    events = [b'event: lost\ndata: {"count":%d}\n\n' % news.lost] if news.lost else []
    events += [b"event: exchange\ndata: %s\n\n" % dump(each.shown(reader)) for each in news.exchanges]
    return b"".join(events) or b": still here\n\n"
