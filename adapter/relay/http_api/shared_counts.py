"""Counts of exchanges of all replicas: each tells its own hour when another one asks, and nothing is told unasked."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection

from adapter.errors import BadJson
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.rules.calls.request_outcomes import MinuteCount, decoded
from adapter.state.port import Store, StoreListener
from adapter.wire.envelope import dump, parse

ASKED, TOLD = "counts asked", "counts told"
"""Topics: a replica wants to know the counts of all others; the counts of one, with its id as the first member."""

BEAT = 2.0
"""Seconds for which an answer is good enough, and between two that a replica gives."""

FRESH = 30.0
"""Seconds after which the counts of a replica that tells no more are left out."""

PATIENCE = 0.4
"""Seconds that the others have to answer whoever looks; what comes later is seen at the next look."""

MOST_REPLICAS = 128
"""Replicas whose counts are kept."""


class SharedCounts(StoreListener):
    """Tells other replicas of the counts of ``recent``, and keeps theirs. ``replica`` is the id of this one.

    ``now`` is a clock that never goes back, ``clock`` gives Unix time.
    """

    def __init__(
        self,
        recent: Recent,
        store: Store,
        replica: str,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.replica = replica
        self._recent = recent
        self._store = store
        self._now = now
        self._clock = clock
        self._heard: dict[str, tuple[float, list[MinuteCount]]] = {}
        self._news = asyncio.Event()
        self._asked = self._told = float("-inf")
        store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<SharedCounts of {self.replica!r}: {len(self._heard)} others>"

    async def of_others(self, expected: Collection[str]) -> dict[str, list[MinuteCount]]:
        """The counts of the other replicas by their ids, asked for anew unless that was done just now.

        It is waited for the ``expected`` ones, as long as PATIENCE.
        """
        if self._now() - self._asked >= BEAT:
            self._asked = self._now()
            self._store.announce(ASKED, b"")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._all_answer(expected, self._asked)
        oldest = self._now() - FRESH
        self._heard = {replica: each for replica, each in self._heard.items() if each[0] >= oldest}
        return {replica: counts for replica, (_, counts) in self._heard.items()}

    async def _all_answer(self, expected: Collection[str], since: float) -> None:
        while any(self._heard.get(replica, (float("-inf"),))[0] < since for replica in expected):
            self._news.clear()
            await self._news.wait()

    # --- words of others --------------------------------------------------------------------------------------

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic == ASKED:
            if self._now() - self._told >= BEAT / 2:
                self._told = self._now()
                counts = map(list, self._recent.counts.last(self._clock()))
                self._store.announce(TOLD, dump([self.replica, *counts]))
        elif topic == TOLD:
            self._hear(body)

    def _hear(self, body: bytes) -> None:
        try:
            replica, *members = parse(body)
            counts = decoded(members)
        except (BadJson, ValueError, TypeError):
            # Another version wrote it.
            return
        if isinstance(replica, str) and (replica in self._heard or len(self._heard) < MOST_REPLICAS):
            self._heard[replica] = self._now(), counts
            self._news.set()
