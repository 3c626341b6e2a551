"""The parts of stages that replicas share: counts of calls, and results of tools."""

from __future__ import annotations

from functools import partial

from adapter.relay.background import BackgroundTasks
from adapter.relay.shared_results import BUCKETS, MOST, SharedResults
from adapter.rules.presenters.state_sync import Invalidation
from adapter.state.port import Store

RATES = "rates"
"""Table: the counts of calls."""


class SharedParts:
    """The parts that stages with ``shared: true`` use. ``caches``: some stage shares results."""

    def __init__(self, store: Store, background: BackgroundTasks, *, caches: bool) -> None:
        self._store = store
        self._background = background
        self._all = SharedResults(store, background, 0) if caches else None
        self._results: dict[int, SharedResults] = {}
        self.spend = partial(store.spend, RATES)

    def __repr__(self) -> str:
        return f"<SharedParts in {self._store!r}>"

    def results_of(self, most_bytes: int) -> SharedResults:
        """The results of a server that may take so many bytes all in all."""
        largest = most_bytes // (BUCKETS * MOST)
        if largest not in self._results:
            self._results[largest] = SharedResults(self._store, self._background, largest)
        return self._results[largest]

    async def purge(self, invalidation: Invalidation) -> None:
        """Make stale what a call has outdated, on every replica. Raises StoreUnavailable."""
        if self._all is not None:
            await self._all.purge(invalidation)

    async def tidy(self) -> None:
        """Delete results whose time is over. Raises StoreUnavailable."""
        if self._all is not None:
            await self._all.tidy()
