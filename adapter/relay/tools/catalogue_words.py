"""The words between processes that share a store, about the tools of servers and their pins."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from adapter.relay.tools.catalogue_cache import CatalogueCache
from adapter.relay.tools.pins import BASELINES, DRIFTS, PINS, SEEN
from adapter.state.port import Store

CHANGED = "tools changed"
"""Topic: the tools of a server may have changed. The body is the server's id."""

PACE = 0.05
"""Seconds between two words about one server: an upstream may say at any rate that its tools have changed."""


class CatalogueListener:
    """Hears what other processes do to the rows of pins; see StoreListener. ``caches`` are those of servers by id.

    Of servers that are not ``pinned`` no row is ever read.
    """

    def __init__(self, caches: Mapping[str, CatalogueCache], pinned: Collection[str]) -> None:
        self._caches = caches
        self._pinned = {server: cache for server, cache in caches.items() if server in pinned}

    def __repr__(self) -> str:
        return f"<CatalogueListener of {len(self._caches)} servers>"

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table in (BASELINES, SEEN) and key in self._pinned:
            self._pinned[key].doubt()
        elif table == DRIFTS and key in self._pinned:
            self._pinned[key].forget_met()
        elif table == PINS:
            server, _, scope_id = key.rpartition("/")
            if server in self._pinned:
                self._pinned[server].drop_pin(scope_id)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        for cache in self._pinned.values():
            cache.doubt()
            cache.forget_met()

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic == CHANGED and (cache := self._caches.get(body.decode(errors="replace"))) is not None:
            cache.changed()


class CatalogueTeller:
    """Tells other processes that the tools of one server may have changed: at once, and then once for each ``PACE``."""

    def __init__(self, store: Store, server: str) -> None:
        self._store = store
        self._body = server.encode()
        self._pause: asyncio.TimerHandle | None = None
        self._again = False

    def __repr__(self) -> str:
        return f"<CatalogueTeller of {self._body.decode()!r}>"

    def __call__(self) -> None:
        """Tell it now, or at the end of the pause."""
        if self._pause is not None:
            self._again = True
            return
        self._store.announce(CHANGED, self._body)
        self._pause = asyncio.get_running_loop().call_later(PACE, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._again:
            self._again = False
            self()
