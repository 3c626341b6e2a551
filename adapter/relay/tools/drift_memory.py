"""Drift that scopes met, in the store until an operator accepts it: it outlives the sessions and the process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from adapter.rules.tools.remembered_drift import (
    Meeting,
    RememberedDrift,
    decode_remembered,
    encode_remembered,
)
from adapter.state.port import ABSENT, Conflict, Row, Store

DRIFTS = "drifts"
"""Table: what was met, by server."""

MET = 100_000
"""Meetings of which it is known that they are written down."""

KNOWN_FOR = 60.0
"""Seconds for which that is known: another process may have forgotten them meanwhile, for an operator accepted."""


class DriftMemory:
    """The catalogues that scopes met and that were not their server's baseline. ``clock`` gives Unix time.

    Every method raises StoreUnavailable.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[tuple[str, str, str, str, bool], float] = OrderedDict()
        self._waiting: dict[str, list[Meeting]] = {}
        self._writing: dict[str, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<DriftMemory: {len(self._known)} meetings known>"

    async def of(self, server: str, baseline: str) -> RememberedDrift | None:
        """The drift of a server from its baseline (digest) that nobody has accepted, None if there is none."""
        _, found = await self._read(server)
        return found if found is not None and found.baseline == baseline and found.met else None

    def knows(self, server: str, baseline: str, digest: str, scope: str, *, own: bool) -> bool:
        """Tell whether it was written down a moment ago that a scope met the catalogue of that digest."""
        written = self._known.get((server, baseline, digest, scope, own), float("-inf"))
        return 0 <= self._clock() - written <= KNOWN_FOR

    async def met(self, server: str, meeting: Meeting) -> None:
        """Write down what a scope met; what comes while another write is under way is written in one go."""
        waiting = self._waiting.setdefault(server, [])
        waiting.append(meeting)
        async with self._writing.setdefault(server, asyncio.Lock()):
            meetings = list(waiting)
            waiting.clear()
            if meetings:
                await self._write(server, meetings)
        for each in meetings:
            self._known[server, each.baseline, each.digest, each.scope, each.own] = self._clock()
        while len(self._known) > MET:
            self._known.popitem(last=False)

    async def forget(self, server: str) -> None:
        """An operator has accepted what there is."""
        await self._store.delete(DRIFTS, server)
        self._known.clear()

    async def forget_others(self, server: str) -> None:
        """The server offers each user other tools, so only what a scope met after other tools of its own counts."""
        await self._change(server, lambda found: found and found.of_those_who_saw_both())

    async def digests(self) -> set[str]:
        """The catalogues that an operator may still want to look at."""
        found: set[str] = set()
        after = ""
        while rows := await self._store.scan(DRIFTS, after=after):
            for row in rows:
                if (remembered := _decoded(row)) is not None:
                    found.update(each.digest for each in remembered.met)
            after = rows[-1].key
        return found

    async def _write(self, server: str, meetings: Sequence[Meeting]) -> None:
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
                # Another process wrote what its own sessions met.
                continue

    async def _read(self, server: str) -> tuple[Row | None, RememberedDrift | None]:
        row = await self._store.get(DRIFTS, server)
        return row, _decoded(row)


def _decoded(row: Row | None) -> RememberedDrift | None:
    try:
        return decode_remembered(row.value) if row is not None else None
    except ValueError:
        # Another version wrote it; what it knew begins anew here.
        return None
