"""Catalogues in the store, each once by its digest, as long as anything refers to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Set

from adapter.relay.background import SingleFlight, in_turns
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.tools.catalogue import Catalogue, decode, encode
from adapter.state.port import Conflict, Row, Store

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
