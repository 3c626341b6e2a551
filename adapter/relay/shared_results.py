"""Results of tools in the state store, for all replicas: found in one step, and worked out once for all who ask."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson

from adapter.errors import StoreUnavailable
from adapter.pipeline.result_cache import PATIENCE, CachedResult, Lookup, Work
from adapter.relay.background import BackgroundTasks
from adapter.rules.presenters.state_sync import Invalidation
from adapter.rules.text.expressions import Glob
from adapter.state.port import ABSENT, Conflict, Put, Row, Store, StoreListener, delete_overdue

TABLE, PURGES = "results", "purges"
"""Tables: results by bucket and key, and what made results stale."""

PURGE_KEY = "all"

KEPT_PURGES = 64
"""Purges that are kept; a result from before all of them counts as stale."""

BUCKETS = 128
"""Groups of rows of one server, so that they lie in many partitions."""

MOST = 16
"""Results of one bucket."""

LOOK = 0.25
"""Seconds between two looks at a result that others work out, where no word of it comes."""

RATES = "rates"
"""Table: the counts of calls."""

_WORKING, _DONE = b"W", b"D"


class SharedResult(NamedTuple):
    """A result of a server to look for."""

    server: ServerResults
    lookup: Lookup

    @property
    def row(self) -> str:
        """The key of its row."""
        key = self.lookup.key
        return f"{self.server.id}:{int(key[:8], 16) % BUCKETS}/{key}"


class _Purge(NamedTuple):
    number: int
    patterns: list[str]


class _Purges(NamedTuple):
    """What made results stale, the last one at the end. ``number`` counts all that there ever were."""

    number: int
    last: list[_Purge]

    @classmethod
    def of(cls, row: Row | None) -> _Purges:
        if row is None:
            return cls(0, [])
        number, last = orjson.loads(row.value)
        return cls(number, [_Purge(*each) for each in last])

    def stales(self, number: int, server: str, tool: str) -> bool:
        """Tell whether a result of this tool, begun when there had been so many, is stale."""
        if number < self.number - len(self.last):
            return True
        later = (each for each in self.last if each.number > number)
        return any(Invalidation("", tuple(map(Glob, each.patterns))).stales(server, tool) for each in later)


class _Found(NamedTuple):
    """The row of a result, ``value`` if it is one that may be used, and the number of purges by now."""

    row: Row | None
    value: CachedResult | None
    purges: int

    @property
    def is_worked_out(self) -> bool:
        return self.row is not None and self.row.value.startswith(_WORKING)

    @property
    def version(self) -> int:
        return ABSENT if self.row is None else self.row.version


_NOTHING = _Found(None, None, 0)


@dataclass(eq=False)
class SharedResults(StoreListener):
    """What stages with ``shared: true`` share with other replicas: counts of calls, and results if some ``caches``.

    ``now`` is a clock that never goes back, ``clock`` gives Unix time. While the store fails each caller does its own
    work. Looking is one request; only who finds nothing writes.
    """

    store: Store
    background: BackgroundTasks
    _: KW_ONLY
    caches: bool
    patience: float = PATIENCE
    now: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    _changes: dict[str, asyncio.Event] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.spend = partial(self.store.spend, RATES)
        if self.caches:
            self.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<SharedResults: {len(self._changes)} results waited for>"

    def results_of(self, server: str, most_bytes: int) -> ServerResults:
        """The results of a server that may take so many bytes all in all."""
        return ServerResults(self, server, most_bytes // (BUCKETS * MOST))

    # --- words of others --------------------------------------------------------------------------------------

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table == TABLE and (change := self._changes.pop(key, None)) is not None:
            change.set()

    def rows_unknown(self) -> None:
        """See StoreListener."""
        for key in list(self._changes):
            self.row_changed(TABLE, key)

    # --- finding ----------------------------------------------------------------------------------------------

    async def find(self, wanted: SharedResult, work: Work) -> CachedResult:
        """The result that is kept, else that of ``work``, which one caller of all replicas does for all who ask.

        The others wait for it, at most ``patience`` seconds, and then do it themselves. What ``work`` raises, or
        has no form to be kept in, is that caller's own.
        """
        found, mark = _NOTHING, None
        with contextlib.suppress(StoreUnavailable):
            found, mark = await self._decide(wanted)
        if found.value is not None:
            return found.value
        if mark is None:
            # Of a result that was its caller's own the others take no turns: the last would wait for all failures.
            return CachedResult(await work(), hit=False)
        return CachedResult(await self._lead(wanted, found.purges, mark, work), hit=False)

    async def _decide(self, wanted: SharedResult) -> tuple[_Found, Row | None]:
        """Find the result, or the mark that it is worked out here; neither: each does its own work."""
        found, mark = await self._look(wanted), None
        if found.value is None and not found.is_worked_out:
            mark = await self._begin(wanted, found)
            if mark is None:
                found = await self._look(wanted)
        if mark is None and found.is_worked_out:
            found = await self._follow(wanted, found)
            if found.is_worked_out:
                # Whoever began has gone, or takes too long.
                mark = await self._begin(wanted, found)
        return found, mark

    async def _follow(self, wanted: SharedResult, found: _Found) -> _Found:
        """Wait until the result is no longer worked out elsewhere, at most ``patience`` seconds."""
        until = self.now() + self.patience
        while found.is_worked_out and (left := until - self.now()) > 0:
            change = self._changes.setdefault(wanted.row, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK, left)):
                    await change.wait()
            found = await self._look(wanted)
        return found

    async def _look(self, wanted: SharedResult) -> _Found:
        # Both are asked at once: a purge that was answered before this call began must count.
        row, purge = await asyncio.gather(
            self.store.get(TABLE, wanted.row), self.store.get(PURGES, PURGE_KEY)
        )
        purges = _Purges.of(purge)
        if row is None or not row.value.startswith(_DONE) or (row.due or 0.0) <= self.clock():
            return _Found(row, None, purges.number)
        number, _, text = row.value[1:].partition(b" ")
        if purges.stales(int(number), wanted.server.id, wanted.lookup.tool):
            return _Found(row, None, purges.number)
        try:
            return _Found(row, CachedResult(wanted.lookup.form.decode(text), hit=True), purges.number)
        except ValueError:
            return _Found(row, None, purges.number)

    async def _begin(self, wanted: SharedResult, found: _Found) -> Row | None:
        """Write down that the result is worked out here; None where another caller was first, or there is no room."""
        due = self.clock() + max(wanted.lookup.ttl, self.patience)
        value = _WORKING + secrets.token_bytes(8)
        most = MOST if found.row is None else None
        try:
            (row,) = await self.store.commit([Put(TABLE, wanted.row, value, due, found.version, most)])
        except Conflict:
            return None
        return row

    async def _lead(self, wanted: SharedResult, purges: int, mark: Row, work: Work) -> Any:
        text: bytes | None = None
        try:
            value = await work()
            text = wanted.lookup.form.encode(value)
            return value
        finally:
            if text is not None and len(text) <= wanted.server.largest:
                ended = self._keep(wanted, mark, b"%b%d %b" % (_DONE, purges, text))
            else:
                ended = self._give_up(wanted, mark)
            # Beside the answer: nobody waits for the store to have it.
            self.background.run(ended)

    async def _keep(self, wanted: SharedResult, mark: Row, value: bytes) -> None:
        with contextlib.suppress(StoreUnavailable, Conflict):
            due = self.clock() + wanted.lookup.ttl
            await self.store.put(TABLE, wanted.row, value, expected=mark.version, due=due)
        self.row_changed(TABLE, wanted.row)

    async def _give_up(self, wanted: SharedResult, mark: Row) -> None:
        with contextlib.suppress(StoreUnavailable, Conflict):
            await self.store.delete(TABLE, wanted.row, expected=mark.version)
        self.row_changed(TABLE, wanted.row)

    # --- forgetting -------------------------------------------------------------------------------------------

    async def purge(self, invalidation: Invalidation) -> None:
        """Make the results stale that a call has outdated, on every replica. Raises StoreUnavailable."""
        while self.caches:
            row = await self.store.get(PURGES, PURGE_KEY)
            number, last = _Purges.of(row)
            last.append(_Purge(number + 1, list(map(str, invalidation.patterns))))
            value = orjson.dumps([number + 1, [[*each] for each in last[-KEPT_PURGES:]]])
            with contextlib.suppress(Conflict):
                version = ABSENT if row is None else row.version
                await self.store.put(PURGES, PURGE_KEY, value, expected=version)
                return

    async def tidy(self) -> None:
        """Delete results whose time is over. Raises StoreUnavailable."""
        if self.caches:
            await delete_overdue(self.store, TABLE, self.clock())


class ServerResults:
    """A ResultFinder: the shared results of one server. One of more than ``largest`` bytes is not kept."""

    def __init__(self, parts: SharedResults, server: str, largest: int) -> None:
        self.id = server
        self.largest = largest
        self._parts = parts

    async def find(self, lookup: Lookup, work: Work) -> CachedResult:
        """See SharedResults."""
        return await self._parts.find(SharedResult(self, lookup), work)
