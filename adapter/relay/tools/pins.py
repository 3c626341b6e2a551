"""Pins in the store: the catalogue that each scope first saw, and the drift that was met and nobody has accepted.

A pin is a digest; the catalogue itself is kept once, whoever saw it. What is remembered of pins is in CatalogueCache.

Catalogues in the store, each once by its digest, as long as anything refers to it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

import orjson

from adapter.relay.background import SingleFlight, in_turns
from adapter.rules.access.principals import Scope
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.tools.catalogue import Catalogue, Mode, decode, encode
from adapter.rules.tools.drift import (
    Drift,
    DriftSighting,
    RememberedDrift,
    decode_remembered,
    encode_remembered,
)
from adapter.state.port import ABSENT, Conflict, Row, Store, every_row

CATALOGUES = "catalogues"
"""Table: catalogues by their digest."""

LOADED = 32
"""Catalogues that are kept in memory; a server has one or a few at a time."""

LOADED_BYTES = 128 << 20
"""Bytes of the catalogues in memory, though one always stays."""

GRACE = 6 * 3600.0
"""Seconds for which a catalogue stays after anything was last seen to refer to it."""

SLACK = 60.0
"""Seconds by which the clocks of processes may differ: what is due sooner may be deleted by another at this moment."""

SURE = 10_000
"""Catalogues that are known to be written down, for half of ``GRACE``."""

WRITTEN_BYTES = 256 << 20
"""Bytes of one server's catalogues that are written in ``GRACE``. Beyond that they are compared by digest alone."""

_ROUND = 64
_AT_ONCE = 4


class Catalogues:
    """The catalogues of all servers. ``clock`` gives Unix time. Every method raises StoreUnavailable."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._loaded = LastUsed[str, Catalogue](LOADED, LOADED_BYTES, weight)
        self._sure: OrderedDict[str, float] = OrderedDict()
        self._written: dict[str, tuple[float, int]] = {}
        self._keeping = SingleFlight[str, None]()
        self._undated: str | None = ""

    def __repr__(self) -> str:
        return f"<Catalogues: {len(self._loaded)} loaded>"

    async def get(self, digest: str) -> Catalogue | None:
        """The catalogue of that digest; None if it is not known, or another version wrote it."""
        found = self._loaded.get(digest)
        if found is not None:
            return found
        row = await self._store.get(CATALOGUES, digest)
        if row is None:
            return None
        try:
            found = await in_turns(decode(row.value))
        except ValueError:
            return None
        self._loaded.put(digest, found)
        return found

    async def keep(self, server: str, catalogue: Catalogue) -> None:
        """Write this catalogue of a server down, so that every process finds it by its digest."""
        digest = catalogue.digest
        if self._sure.get(digest, 0.0) <= self._clock():
            await self._keeping.get(digest, lambda: self._keep(server, catalogue))
        if digest not in self._loaded.values:
            self._loaded.put(digest, catalogue)

    async def _keep(self, server: str, catalogue: Catalogue) -> None:
        digest, now = catalogue.digest, self._clock()
        row = await self._store.get(CATALOGUES, digest)
        if row is not None and (row.due is None or row.due > now + SLACK):
            await self._store.touch(CATALOGUES, {digest: now + GRACE})
        else:
            # It may be deleted at this moment, so it is written anew.
            value = await in_turns(encode(catalogue))
            if not self._may_write(server, len(value)):
                return
            # Equal digests have equal values, so it does not matter who is first.
            await self._store.put(CATALOGUES, digest, value, due=now + GRACE)
        self._sure[digest] = now + GRACE / 2
        if len(self._sure) > SURE:
            self._sure.popitem(last=False)

    def _may_write(self, server: str, size: int) -> bool:
        since, written = self._written.get(server, (self._clock(), 0))
        if not 0 <= self._clock() - since < GRACE:
            since, written = self._clock(), 0
        self._written[server] = since, written + size
        return written == 0 or written + size <= WRITTEN_BYTES

    def store_lost(self) -> None:
        """Write catalogues down again when they are used next."""
        self._sure.clear()

    # --- deleting ---------------------------------------------------------------------------------------------

    async def tidy(self, referred: Set[str]) -> None:
        """Delete catalogues that nothing has referred to for ``GRACE``: some of them each time.

        ``referred`` are the digests that something refers to now.
        """
        now = self._clock()
        await self._store.touch(CATALOGUES, dict.fromkeys(referred, now + GRACE))
        await self._date(now)
        for _ in range(_ROUND // _AT_ONCE):
            rows = await self._store.overdue(CATALOGUES, now, limit=_AT_ONCE)
            for row in rows:
                await self._delete(row)
            if len(rows) < _AT_ONCE:
                return

    async def _delete(self, row: Row) -> None:
        try:
            await self._store.delete(CATALOGUES, row.key, expected=row.version)
        except Conflict:
            # Another process wrote it again.
            return
        self._sure.pop(row.key, None)

    async def _date(self, now: float) -> None:
        """Give a due time to rows of an earlier version, which have none."""
        for _ in range(_ROUND // _AT_ONCE):
            if self._undated is None:
                return
            rows = await self._store.scan(CATALOGUES, after=self._undated, limit=_AT_ONCE)
            dues = {row.key: now + GRACE for row in rows if row.due is None}
            if dues:
                await self._store.touch(CATALOGUES, dues)
            self._undated = rows[-1].key if len(rows) == _AT_ONCE else None


def weight(catalogue: Catalogue) -> Weight:
    """The weight of a catalogue: its digest and its size."""
    return Weight(catalogue.digest, catalogue.size)


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


@dataclass(frozen=True, slots=True)
class PinStatus:
    """The pin status of one server: its ``baseline``, the catalogue that was seen last (``now``), and their drift.

    ``origin`` is the source of the baseline: a lock file, an operator who accepted it, or else the first session that
    saw the server. ``since`` is when that was (Unix seconds), None for a file. ``baseline`` is None if it cannot be
    read.
    ``remembered`` is the drift that was met before and nobody has accepted.
    """

    mode: Mode
    origin: Origin = "nothing"
    baseline: Catalogue | None = None
    since: float | None = None
    now: Catalogue | None = None
    drift: Drift | None = None
    remembered: RememberedDrift | None = None

    @property
    def drifted(self) -> int:
        """The number of tools that drifted."""
        return self.drift.size if self.drift is not None else 0

    @property
    def holds(self) -> bool:
        """Tell whether the tools of now are the baseline."""
        return self.baseline is not None and self.now is not None and self.baseline.digest == self.now.digest

    @property
    def accepted(self) -> bool:
        """Tell whether an operator or a file wants every session to start from the tools of now, and no other drift is
        remembered.
        """
        return self.remembered is None and self.origin in ("lock", "accepted") and self.holds


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
