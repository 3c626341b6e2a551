"""Pins in the store: the catalogue that each scope first saw, and the drift that was met and nobody has accepted.

A pin is a digest; the catalogue itself is kept once, whoever saw it. What is remembered of pins is in CatalogueCache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import orjson

from adapter.relay.tools.catalogue_store import CATALOGUES, Catalogues
from adapter.rules.access.principals import Scope
from adapter.rules.tools.catalogue import Catalogue, Mode
from adapter.rules.tools.drift import (
    Drift,
    DriftSighting,
    RememberedDrift,
    decode_remembered,
    encode_remembered,
)
from adapter.state.port import ABSENT, Conflict, Row, Store, every_row

PINS, BASELINES, FIRST, SEEN = "pins", "baselines", "first_seen", "seen"
"""Tables: the pin of a scope; what an operator accepted, what was seen first, and what was seen last, of a server."""

DRIFTS = "drifts"
"""Table: the drift that was met, by server."""

SWEEPS = "sweeps"
"""Table: the Unix times of the last searches through whole tables, so that of several processes one does them."""

SWEPT = 3600.0
"""Seconds between two searches for catalogues that nothing refers to."""


class Pin(NamedTuple):
    """``digest`` of a catalogue, and since when (Unix seconds)."""

    digest: str
    since: float


Origin = Literal["nothing", "lock", "accepted", "first_seen"]


class ServerBaseline(NamedTuple):
    """The catalogue that a server is compared with, None if it cannot be read.

    ``origin`` is its source: a lock file, an operator who accepted it, or else the first session that saw the server.
    ``since`` is when that was (Unix seconds), None for a file.
    """

    origin: Origin
    catalogue: Catalogue | None = None
    since: float | None = None

    @property
    def is_binding(self) -> bool:
        """Tell whether an operator or a file wants every session to start from it."""
        return self.origin in ("lock", "accepted")

    def is_of(self, now: Catalogue | None) -> bool:
        return self.catalogue is not None and now is not None and self.catalogue.digest == now.digest


NO_BASELINE = ServerBaseline("nothing")


@dataclass(frozen=True, slots=True)
class PinStatus:
    """The pin status of one server: its ``baseline``, the catalogue that was seen last (``now``), and their drift.

    ``remembered`` is the drift that was met before and nobody has accepted.
    """

    mode: Mode
    baseline: ServerBaseline = NO_BASELINE
    now: Catalogue | None = None
    drift: Drift | None = None
    remembered: RememberedDrift | None = None

    @property
    def drifted(self) -> int:
        """The number of tools that drifted."""
        return self.drift.size if self.drift is not None else 0

    @property
    def accepted(self) -> bool:
        """Tell whether the baseline is binding and the same as the tools of now, and no other drift is remembered."""
        return self.remembered is None and self.baseline.is_binding and self.baseline.is_of(self.now)


class ScopeKey(NamedTuple):
    """A scope (public id) at a server."""

    server: str
    scope_id: str


class Pins:
    """The pins of all servers. ``clock`` gives Unix time. Every method raises StoreUnavailable. ``shared``: other
    processes may write them too.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self.shared = store.shared
        self._clock = clock
        self._catalogues = Catalogues(store, clock)
        self.drift = DriftMemory(store)
        self._tidied = ""

    def store_lost(self) -> None:
        """See Catalogues."""
        self._catalogues.store_lost()

    # --- scopes -----------------------------------------------------------------------------------------------

    async def of(self, key: ScopeKey) -> Pin | None:
        """The scope's own pin."""
        return await self._get(PINS, "/".join(key))

    async def add(self, key: ScopeKey, pin: Pin, owner: str) -> bool:
        """Pin the scope, which has this owner, unless it is pinned. Return whether it was not."""
        return await self._write_first(PINS, "/".join(key), [*pin, owner])

    async def remove(self, key: ScopeKey) -> None:
        await self._store.delete(PINS, "/".join(key))

    async def count(self, server: str) -> dict[str, int]:
        """The number of scopes that are pinned to each catalogue of a server, by its digest."""
        counts: dict[str, int] = {}
        async for row in every_row(self._store, PINS, server):
            digest = _pin(row).digest
            counts[digest] = counts.get(digest, 0) + 1
        return counts

    async def tidy(self, gone: Callable[[Scope], Awaitable[bool]]) -> list[ScopeKey]:
        """Remove pins whose scope is ``gone``: one page of them each time, so that no round is a long one.

        Every ``SWEPT`` seconds also remove the catalogues that nothing refers to. Return the scopes that are gone.
        """
        rows = await self._store.scan(PINS, after=self._tidied)
        self._tidied = rows[-1].key if rows else ""
        are_gone = await asyncio.gather(*(gone(_scope(row)) for row in rows))
        keys = [
            ScopeKey(server, scope_id)
            for row, is_gone in zip(rows, are_gone, strict=True)
            if is_gone
            for server, _, scope_id in (row.key.rpartition("/"),)
        ]
        await asyncio.gather(*map(self.remove, keys))
        if await self._begins_sweep():
            await self._catalogues.tidy(await self._referred())
        return keys

    async def _begins_sweep(self) -> bool:
        """Tell whether the next search is due, and this process the one to do it."""
        row = await self._store.get(SWEEPS, CATALOGUES)
        if row is not None and 0 <= self._clock() - float(row.value) < SWEPT:
            return False
        version = row.version if row is not None else ABSENT
        try:
            await self._store.put(SWEEPS, CATALOGUES, b"%f" % self._clock(), expected=version)
        except Conflict:
            return False
        return True

    async def _referred(self) -> set[str]:
        """The catalogues that somebody is pinned to, or an operator may want to look at."""
        digests = {
            _pin(row).digest
            for table in (PINS, BASELINES, FIRST, SEEN)
            async for row in every_row(self._store, table)
        }
        async for row in every_row(self._store, DRIFTS):
            if (remembered := _remembered(row)) is not None:
                digests.update(each.first.digest for each in remembered.met)
        return digests

    # --- servers ----------------------------------------------------------------------------------------------

    async def catalogue(self, digest: str) -> Catalogue | None:
        """The catalogue of that digest; None if it is not known, or another version wrote it."""
        return await self._catalogues.get(digest)

    async def keep(self, server: str, catalogue: Catalogue) -> Pin:
        """Write a catalogue of a server down. Return its pin as of now."""
        await self._catalogues.keep(server, catalogue)
        return Pin(catalogue.digest, self._clock())

    async def keep_seen(self, server: str, catalogue: Catalogue) -> None:
        """Write down the catalogue that a server offers now as the last one, and as the first if there is none yet.

        Of a server of which an earlier version kept only the last catalogue, that one is the first.
        """
        pin = await self.keep(server, catalogue)
        if await self.first(server) is None:
            await self._write_first(FIRST, server, [*(await self.last_seen(server) or pin)])
        await self._store.put(SEEN, server, orjson.dumps([*pin]))

    async def last_seen(self, server: str) -> Pin | None:
        """The pin of the catalogue that this server offered last."""
        return await self._get(SEEN, server)

    async def first(self, server: str) -> Pin | None:
        """The pin of the catalogue that anybody saw first of this server. Its tools never change."""
        return await self._get(FIRST, server)

    async def accepted(self, server: str) -> Pin | None:
        """The pin that an operator accepted for all scopes of this server."""
        return await self._get(BASELINES, server)

    async def accept(self, server: str, catalogue: Catalogue) -> None:
        """Make this the baseline of every present and future scope, and forget the drift that was met."""
        pin = await self.keep(server, catalogue)
        await self._store.put(BASELINES, server, orjson.dumps([*pin]))
        await self.drift.forget(server)

    async def _get(self, table: str, key: str) -> Pin | None:
        row = await self._store.get(table, key)
        return _pin(row) if row is not None else None

    async def _write_first(self, table: str, key: str, value: list[object]) -> bool:
        try:
            await self._store.put(table, key, orjson.dumps(value), expected=ABSENT)
        except Conflict:
            return False
        return True


def _pin(row: Row) -> Pin:
    digest, since, *_ = orjson.loads(row.value)
    return Pin(digest, since)


def _scope(row: Row) -> Scope:
    _, _, *owner = orjson.loads(row.value)
    return Scope(row.key.rpartition("/")[2], owner[0] if owner else "")


# --- drift ----------------------------------------------------------------------------------------------------


class DriftMemory:
    """The catalogues that scopes met and that were not their server's baseline. They outlive sessions and processes.

    Every method raises StoreUnavailable.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[DriftSighting]] = {}
        self._writing: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<DriftMemory: {sum(map(len, self._waiting.values()))} meetings to write>"

    async def of(self, server: str, baseline: str) -> RememberedDrift | None:
        """The drift of a server from its baseline (digest) that nobody has accepted, None if there is none."""
        _, found = await self._read(server)
        return found if found is not None and found.baseline == baseline and found.met else None

    async def add(self, server: str, meeting: DriftSighting) -> None:
        """Write a meeting down. Those that come while another write is under way are written together."""
        waiting = self._waiting.setdefault(server, [])
        waiting.append(meeting)
        async with self._writing.setdefault(server, asyncio.Lock()):
            meetings = list(waiting)
            waiting.clear()
            if meetings:
                await self._write(server, meetings)

    async def forget(self, server: str) -> None:
        """Forget the drift of a server: an operator has accepted its tools."""
        await self._store.delete(DRIFTS, server)

    async def forget_others(self, server: str) -> None:
        """Keep only the drift of scopes that saw both catalogues: the server offers each user other tools."""
        await self._change(server, lambda found: found and found.of_those_who_saw_both())

    async def _write(self, server: str, meetings: Sequence[DriftSighting]) -> None:
        def with_meetings(found: RememberedDrift | None) -> RememberedDrift:
            found = found or RememberedDrift(meetings[0].baseline)
            for meeting in meetings:
                found = found.with_meeting(meeting)
            return found

        await self._change(server, with_meetings)

    async def _change(
        self, server: str, change: Callable[[RememberedDrift | None], RememberedDrift | None]
    ) -> None:
        while True:
            row, found = await self._read(server)
            changed = change(found)
            if changed is None or changed == found:
                return
            try:
                version = row.version if row is not None else ABSENT
                await self._store.put(DRIFTS, server, encode_remembered(changed), expected=version)
                return
            except Conflict:
                # Another process wrote the meetings of its own sessions.
                continue

    async def _read(self, server: str) -> tuple[Row | None, RememberedDrift | None]:
        row = await self._store.get(DRIFTS, server)
        return row, _remembered(row) if row is not None else None


def _remembered(row: Row) -> RememberedDrift | None:
    try:
        return decode_remembered(row.value)
    except ValueError:
        # Another version wrote it, so the drift is remembered anew.
        return None
