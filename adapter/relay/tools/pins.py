"""Pins: which catalogue of a server each scope first saw. A catalogue itself is kept once, whoever saw it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson

from adapter.relay.tools.catalogue_store import Catalogues
from adapter.relay.tools.drift_memory import DriftMemory
from adapter.rules.access.principals import Scope
from adapter.rules.tools.catalogue import Catalogue
from adapter.state.port import ABSENT, Conflict, Row, Store

PINS, BASELINES, FIRST, SEEN = "pins", "baselines", "first_seen", "seen"
"""Tables: the pin of a scope; what an operator accepted, what was seen first, and what was seen last, of a server."""

KNOWN = 100_000
"""Pins of scopes that are kept in memory; of one that was dropped the janitor takes away what is left in the end."""

ENDED = 10_000
"""Scopes that ended last, for which a call under way may still ask."""

LOOKED_UP = 10.0
"""Seconds for which an operator's word, or that there is none, is remembered."""

SWEPT = 3600.0
"""Seconds after which it is looked again for catalogues that nothing refers to."""


class Pin(NamedTuple):
    """``digest`` of a catalogue, and since when (Unix seconds)."""

    digest: str
    since: float


class Pins:
    """``clock`` gives Unix time. ``memory`` has the drift that was met. Every method raises StoreUnavailable."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._catalogues = Catalogues(store, clock)
        self.memory = DriftMemory(store, clock)
        self._firsts: dict[str, Pin] = {}
        self._baselines: dict[str, tuple[float, Pin | None]] = {}
        self._seen: dict[str, str] = {}
        self._known: dict[str, Pin] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._tidied = ""
        self._swept_at = float("-inf")

    def __repr__(self) -> str:
        return f"<Pins: {len(self._known)} known, {self._catalogues}>"

    # --- scopes -----------------------------------------------------------------------------------------------

    async def of(self, server: str, scope_id: str) -> Pin | None:
        """The pin of this scope: its own, or what an operator accepted after it."""
        own = await self._own(_key(server, scope_id))
        accepted = await self.baseline(server)
        if accepted is not None and (own is None or own.since <= accepted.since):
            return accepted
        return own

    async def pin(self, server: str, scope_id: str, catalogue: Catalogue, owner: str = "") -> Pin:
        """Pin the scope unless it is pinned already; what it is pinned to. ``owner`` is the scope's."""
        made = Pin(catalogue.digest, self._clock())
        key = _key(server, scope_id)
        accepted = await self.baseline(server)
        if scope_id in self._ended:
            # Nobody would take the pin away again.
            return accepted or made
        if accepted is not None or key in self._known:
            return await self.of(server, scope_id) or made
        await self._catalogues.keep(server, catalogue)
        # Asked together they cost the store one turn, and an operator's word of this very moment is rare.
        accepted, is_first = await asyncio.gather(self.look_up(server), self._write(key, made, owner))
        if not is_first:
            # Another replica was, or another call of the same scope.
            return await self.of(server, scope_id) or made
        if accepted is not None or scope_id in self._ended:
            await self._take_away(key)
        return accepted or made

    def end(self, scope_id: str) -> None:
        """The scope has ended: it is pinned no more, and soon forgotten."""
        self._ended[scope_id] = None
        if len(self._ended) > ENDED:
            self._ended.popitem(last=False)

    async def forget(self, servers: list[str], scope_id: str) -> None:
        """The scope has ended. What this process has not pinned costs nothing; the janitor finds it."""
        self.end(scope_id)
        keys = [key for server in servers if (key := _key(server, scope_id)) in self._known]
        if keys:
            await asyncio.gather(*map(self._take_away, keys))

    async def tidy(self, gone: Callable[[Scope], Awaitable[bool]]) -> None:
        """Take away pins whose scope is ``gone``: one page of them each time, so that no round is a long one.

        Now and then also the catalogues that nothing refers to any more.
        """
        rows = await self._store.scan(PINS, after=self._tidied)
        self._tidied = rows[-1].key if rows else ""
        scopes = [_scope(row) for row in rows]
        found = await asyncio.gather(*(gone(scope) for scope in scopes))
        keys = [row.key for row, is_gone in zip(rows, found, strict=True) if is_gone]
        await asyncio.gather(*map(self._take_away, keys))
        if not 0 <= self._clock() - self._swept_at < SWEPT:
            self._swept_at = self._clock()
            await self._catalogues.tidy(await self._referred())

    async def _referred(self) -> set[str]:
        """The catalogues that somebody is pinned to, or an operator may want to look at."""
        found = await self.memory.digests()
        for table in (PINS, BASELINES, FIRST, SEEN):
            after = ""
            while rows := await self._store.scan(table, after=after):
                found.update(_pin(row.value).digest for row in rows)
                after = rows[-1].key
        return found

    async def _own(self, key: str) -> Pin | None:
        known = self._known.get(key)
        if known is None and (row := await self._store.get(PINS, key)) is not None:
            known = self._know(key, _pin(row.value))
        return known

    async def _write(self, key: str, made: Pin, owner: str) -> bool:
        """Write the pin if there is none yet. Return whether it was the first."""
        try:
            await self._store.put(PINS, key, orjson.dumps([*made, owner]), expected=ABSENT)
        except Conflict:
            return False
        self._know(key, made)
        return True

    def _know(self, key: str, pin: Pin) -> Pin:
        self._known[key] = pin
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        return pin

    async def _take_away(self, key: str) -> None:
        self._known.pop(key, None)
        await self._store.delete(PINS, key)

    # --- catalogues -------------------------------------------------------------------------------------------

    async def catalogue(self, digest: str) -> Catalogue | None:
        """The catalogue of that digest; None if it is not known, or another version wrote it."""
        return await self._catalogues.get(digest)

    async def saw(self, server: str, catalogue: Catalogue) -> None:
        """Remember what a server offers now, for the operator who asks while it is away; and what it offered first."""
        if self._seen.get(server) == catalogue.digest:
            return
        await self._catalogues.keep(server, catalogue)
        made = Pin(catalogue.digest, self._clock())
        if server not in self._firsts:
            self._firsts[server] = await self._make_first(server, made)
        await self._store.put(SEEN, server, _written(made))
        self._seen[server] = catalogue.digest

    async def _make_first(self, server: str, made: Pin) -> Pin:
        """Return what the server offered first, and write it if nobody has.

        If an earlier version has kept only what the server offered last, that counts as the first.
        """
        found = await self.first(server)
        if found is not None:
            return found
        made = await self.last_seen(server) or made
        try:
            await self._store.put(FIRST, server, _written(made), expected=ABSENT)
        except Conflict:
            return await self.first(server) or made
        return made

    async def last_seen(self, server: str) -> Pin | None:
        row = await self._store.get(SEEN, server)
        return _pin(row.value) if row is not None else None

    async def first(self, server: str) -> Pin | None:
        """The pin of what this server was first seen to offer, whoever saw it."""
        found = self._firsts.get(server)
        if found is None and (row := await self._store.get(FIRST, server)) is not None:
            found = self._firsts[server] = _pin(row.value)
        return found

    # --- operators --------------------------------------------------------------------------------------------

    async def baseline(self, server: str) -> Pin | None:
        """The pin that an operator accepted for all scopes of this server, as of a few seconds ago."""
        looked, found = self._baselines.get(server, (float("-inf"), None))
        if not 0 <= self._clock() - looked <= LOOKED_UP:
            found = await self.look_up(server)
        return found

    async def look_up(self, server: str) -> Pin | None:
        """Read what an operator has accepted by now."""
        row = await self._store.get(BASELINES, server)
        found = _pin(row.value) if row is not None else None
        self._baselines[server] = (self._clock(), found)
        return found

    async def accept(self, server: str, catalogue: Catalogue) -> None:
        """Make this the baseline of every scope, those to come too; the drift that was met is settled by that."""
        await self._catalogues.keep(server, catalogue)
        await self._store.put(BASELINES, server, _written(Pin(catalogue.digest, self._clock())))
        self._baselines.pop(server, None)
        await self.memory.forget(server)

    async def of_server(self, server: str) -> Pin | None:
        """The pin that a server is compared with, whatever its scopes start from: accepted, or else seen first."""
        return await self.baseline(server) or await self.first(server)

    async def spread(self, server: str) -> dict[str, int]:
        """The number of scopes that are pinned to each catalogue of a server, by its digest."""
        counts: dict[str, int] = {}
        prefix = f"{server}/"
        after = prefix
        while rows := await self._store.scan(PINS, after=after):
            for row in rows:
                if not row.key.startswith(prefix):
                    return counts
                digest = _pin(row.value).digest
                counts[digest] = counts.get(digest, 0) + 1
            after = rows[-1].key
        return counts


def _key(server: str, scope_id: str) -> str:
    return f"{server}/{scope_id}"


def _written(pin: Pin) -> bytes:
    return orjson.dumps([pin.digest, pin.since])


def _pin(value: bytes) -> Pin:
    digest, since, *_ = orjson.loads(value)
    return Pin(digest, since)


def _scope(row: Row) -> Scope:
    _, _, *owner = orjson.loads(row.value)
    return Scope(row.key.rpartition("/")[2], owner[0] if owner else "")
