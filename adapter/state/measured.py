"""A state store whose operations are counted, with the time that each takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from adapter.errors import StoreUnavailable
from adapter.rules.metrics.catalogue import CLEANUP_REMOVED, STORE_DURATION
from adapter.rules.metrics.metric import MetricSink
from adapter.state.port import STORE_ONLY, Change, Conflict, Delete, Row, Store

P = ParamSpec("P")
T = TypeVar("T")


class MeasuredStore:
    """A Store that counts into ``sink``; what the cleanup deletes is counted by table."""

    def __init__(self, store: Store, sink: MetricSink) -> None:
        self.listeners, self.shared = store.listeners, store.shared
        self._store = store
        self._sink = sink
        self.close, self.announce = store.close, store.announce
        self.open = self._timed("open", store.open)
        self.get = self._timed("get", store.get)
        self.put = self._timed("put", store.put)
        self.touch = self._timed("touch", store.touch)
        self.scan = self._timed("scan", store.scan)
        self.overdue = self._timed("overdue", store.overdue)
        self.count = self._timed("count", store.count)
        self.spend = self._timed("spend", store.spend)
        self._commit = self._timed("commit", store.commit)
        self._delete = self._timed("delete", store.delete)

    def __repr__(self) -> str:
        return f"<MeasuredStore of {self._store!r}>"

    def _timed(
        self, operation: str, method: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            began, result = time.perf_counter(), "failed"
            try:
                outcome = await method(*args, **kwargs)
                result = "ok"
                return outcome
            except Conflict:
                result = "conflict"
                raise
            except StoreUnavailable:
                result = "unavailable"
                raise
            finally:
                self._sink.observe(STORE_DURATION, time.perf_counter() - began, operation, result)

        return timed

    def _removed(self, table: str) -> None:
        if STORE_ONLY.get():
            self._sink.count(CLEANUP_REMOVED, table)

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        """See Store."""
        rows = await self._commit(changes)
        for change in changes:
            if isinstance(change, Delete):
                self._removed(change.table)
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """See Store."""
        was_there = await self._delete(table, key, expected=expected)
        if was_there:
            self._removed(table)
        return was_there
