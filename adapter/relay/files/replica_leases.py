"""The leases of replicas that share files: who lives, judged without the clock of any other machine.

Each replica writes its row again and again. Another one takes it for ended when the row is gone, or when it has not
changed for the length of a lease by that other one's own clock; see Sightings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from adapter.rules.access.replicas import Sightings
from adapter.state.port import Conflict, Row, Store, every_row

TABLE = "file_replicas"
GROUP = "storage"

RENEWAL = 5.0
"""Seconds between two writes of a replica's row."""

LEASE = 20.0
"""Seconds without a write after which a replica counts as ended."""

LOOKS = 3
"""Looks at a row without a change after which its replica may count as ended."""

MOST_ENDED = 1000
"""Ended replicas that are remembered. One that was forgotten is looked for again where a file names it."""


class ReplicaLeases:
    """The lease of this replica, called ``replica``, and those of the others. ``now`` never goes back, in seconds."""

    def __init__(self, store: Store, replica: str, now: Callable[[], float]) -> None:
        self._store = store
        self._key = f"{GROUP}/{replica}"
        self._now = now
        self._renewed = float("-inf")
        self._sightings = Sightings[Row](LOOKS, LEASE)
        self._asked: set[str] = set()
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return f"<ReplicaLeases: {self._key}, {len(self._sightings)} replicas seen>"

    # --- one's own --------------------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """See that no other replica has taken this one for ended, before a change of files. Raises StoreUnavailable."""
        if not self.is_current:
            await self.renew()

    @property
    def is_current(self) -> bool:
        """True while no other replica can have taken this one for ended."""
        return self._now() - self._renewed < LEASE / 2

    async def renew(self) -> None:
        """Write the row again. Raises StoreUnavailable."""
        began = self._now()
        await self._store.put(TABLE, self._key, b"[]")
        self._renewed = began

    async def end(self) -> None:
        """Let the others know that this replica ends. Raises StoreUnavailable."""
        await self._store.delete(TABLE, self._key)

    # --- others' ----------------------------------------------------------------------------------------------

    def is_dead(self, replica: str) -> bool:
        """Tell whether a replica has ended, as far as ``watch`` has seen. One that was not seen yet lives."""
        key = f"{GROUP}/{replica}"
        if key == self._key:
            return False
        if key in self._ended:
            return True
        if self._sightings.get(key) is None:
            self._asked.add(key)
            return False
        return self._sightings.is_silent(key)

    async def watch(self) -> set[str]:
        """Look at the rows of all replicas: those of the living, this one included. Raises StoreUnavailable."""
        # One that is asked for from now on may be about to write its row.
        missed = set(self._asked)
        rows = {row.key: row async for row in every_row(self._store, TABLE, GROUP)}
        silent, gone = self._sightings.look(rows, self._now())
        self._ended = (self._ended if len(self._ended) < MOST_ENDED else set()) | missed.union(gone)
        self._ended -= rows.keys()
        self._asked -= missed
        return {key for key in rows if key == self._key or key not in silent}

    def is_first(self, living: set[str]) -> bool:
        """Tell whether this replica is the one of the living that does what one is enough for."""
        return min(living, default=self._key) == self._key

    async def forget_dead(self) -> bool:
        """Delete the rows of the replicas that have ended: True if there were any. Raises StoreUnavailable."""
        silent = {key: seen for key, seen in self._sightings.all().items() if self._sightings.is_silent(key)}
        silent.pop(self._key, None)
        for key, seen in silent.items():
            with contextlib.suppress(Conflict):
                await self._store.delete(TABLE, key, expected=seen.found.version)
        return bool(silent)
