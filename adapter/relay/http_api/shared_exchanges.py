"""Exchanges of all replicas, and their counts by the minute: told only while somebody looks, and only to replicas."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from adapter.errors import BadJson, LimitReached
from adapter.relay.background import BackgroundTasks
from adapter.relay.http_api.recent_exchanges import PastExchange, Recent, Subscription, WalkedStage
from adapter.rules.calls.request_outcomes import MinuteCount, decoded
from adapter.state.port import Store, StoreListener
from adapter.wire.envelope import dump, parse

WATCHED, ENDED = "exchanges watched", "exchanges ended"
"""Topics: somebody watches exchanges somewhere; exchanges ended, with the replica as the first member."""

BEAT = 5.0
"""Seconds between two words that somebody watches."""

FRESH = 3 * BEAT
"""Seconds for which such a word counts."""

ASKED, TOLD = "counts asked", "counts told"
"""Topics: a replica wants to know the counts of all others; the counts of one, with its id as the first member."""

COUNTS_BEAT = 2.0
"""Seconds for which an answer is good enough, and between two that a replica gives."""

COUNTS_FRESH = 30.0
"""Seconds after which the counts of a replica that tells no more are left out."""

PATIENCE = 0.4
"""Seconds that the others have to answer whoever looks; what comes later is seen at the next look."""

MOST_REPLICAS = 128
"""Replicas whose counts are kept."""

PACE = 0.05
"""Seconds between two words about exchanges."""

LARGEST = 48 << 10
"""Bytes of one word; of exchanges that are more together the rest is not told."""


@dataclass(eq=False)
class SharedExchanges(StoreListener):
    """Tells other replicas of the exchanges here while they watch, and ``recent`` of theirs while it is watched. The
    counts of others it keeps.

    ``replica`` is the id of this one. ``now`` is a clock that never goes back, ``clock`` gives Unix time.
    """

    recent: Recent
    store: Store
    background: BackgroundTasks
    replica: str
    now: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._watched_until = float("-inf")
        self._is_telling = False
        self._is_asking = False
        self._counts: dict[str, tuple[float, list[MinuteCount]]] = {}
        self._counts_came = asyncio.Event()
        self._counts_asked = self._counts_told = float("-inf")
        self.recent.on_watch.append(self._ask)
        self.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<SharedExchanges of {self.replica!r}: {'watched' if self._is_telling else 'not watched'}>"

    # --- watching others --------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Somebody begins to watch here."""
        if not self._is_asking:
            self._is_asking = True
            self.background.run(self._ask_always())

    async def _ask_always(self) -> None:
        try:
            while self.recent.watchers:
                self.store.announce(WATCHED, b"")
                await asyncio.sleep(BEAT)
        finally:
            self._is_asking = False

    # --- counts -----------------------------------------------------------------------------------------------

    async def counts_of_others(self, expected: Collection[str]) -> dict[str, list[MinuteCount]]:
        """The counts of the other replicas by their ids, asked for anew unless that was done just now.

        It is waited for the ``expected`` ones, as long as PATIENCE.
        """
        if self.now() - self._counts_asked >= COUNTS_BEAT:
            self._counts_asked = self.now()
            self.store.announce(ASKED, b"")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._all_answer(expected, self._counts_asked)
        oldest = self.now() - COUNTS_FRESH
        self._counts = {replica: each for replica, each in self._counts.items() if each[0] >= oldest}
        return {replica: counts for replica, (_, counts) in self._counts.items()}

    async def _all_answer(self, expected: Collection[str], since: float) -> None:
        while any(self._counts.get(replica, (float("-inf"),))[0] < since for replica in expected):
            self._counts_came.clear()
            await self._counts_came.wait()

    # --- words of others --------------------------------------------------------------------------------------

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic == WATCHED:
            self._watched_until = self.now() + FRESH
            if not self._is_telling:
                self._is_telling = True
                self.background.run(self._tell_always())
        elif topic == ENDED and self.recent.watchers:
            for exchange in _decoded(body):
                self.recent.offer(exchange)
        elif topic == ASKED and self.now() - self._counts_told >= COUNTS_BEAT / 2:
            self._counts_told = self.now()
            counts = map(list, self.recent.counts.last(self.clock()))
            self.store.announce(TOLD, dump([self.replica, *counts]))
        elif topic == TOLD:
            self._keep_counts(body)

    def _keep_counts(self, body: bytes) -> None:
        try:
            replica, *members = parse(body)
            counts = decoded(members)
        except (BadJson, ValueError, TypeError):
            # Another version wrote it.
            return
        if isinstance(replica, str) and (replica in self._counts or len(self._counts) < MOST_REPLICAS):
            self._counts[replica] = self.now(), counts
            self._counts_came.set()

    async def _tell_always(self) -> None:
        """Tell of the exchanges here until nobody watches any more."""
        # It sees only those of this replica, or each would be told for ever.
        try:
            with contextlib.suppress(LimitReached):
                news = self.recent.subscribe(is_viewer=False)
                try:
                    await self._tell(news)
                finally:
                    self.recent.unsubscribe(news)
        finally:
            self._is_telling = False

    async def _tell(self, subscription: Subscription) -> None:
        while (left := self._watched_until - self.now()) > 0:
            news = await subscription.next_news(left)
            if news is None:
                return
            if news.exchanges:
                self.store.announce(ENDED, _encoded(self.replica, news.exchanges))
                await asyncio.sleep(PACE)


def _encoded(replica: str, exchanges: tuple[PastExchange, ...]) -> bytes:
    """The newest of these exchanges, as many as one word may hold."""
    members: list[bytes] = []
    size = 0
    for exchange in reversed(exchanges):
        fields = [*exchange[:8], [[*stage] for stage in exchange.stages], exchange.principal, exchange.call]
        # A client's name for a tool may be one that UTF-8 cannot hold.
        member = dump(fields)
        size += len(member) + 1
        if size > LARGEST:
            break
        members.append(member)
    return b"[%b,%b]" % (dump(replica), b",".join(reversed(members)))


def _decoded(body: bytes) -> list[PastExchange]:
    """The exchanges of a word; none of one that another version wrote."""
    try:
        replica, *members = parse(body)
        return [_exchange(replica, *member) for member in members]
    except (BadJson, ValueError, TypeError):
        return []


def _exchange(replica: str, *fields: Any) -> PastExchange:
    stages, principal, *call = fields[8:]
    walked = tuple(WalkedStage(*stage) for stage in stages)
    return PastExchange._make([*fields[:8], walked, principal, replica, call[0] if call else None])
