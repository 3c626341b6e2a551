"""The leases of replicas that share files: who lives, judged without the clock of any other machine.

Each replica writes its row again and again. Another one takes it for ended when the row is gone, or when it has not
changed for the length of a lease by that other one's own clock; see Sightings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import orjson

from adapter.rules.access.sightings import Sightings
from adapter.state.paging import every_row
from adapter.state.port import ABSENT, Conflict, Delete, Put, Row, Store

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


class LeaseState(NamedTuple):
    """A replica's share of the storage: the bytes that it ever added, those that it may still add, and the number of
    changes of what it counts.
    """

    added: int = 0
    unspent: int = 0
    changes: int = 0


class LeaseRow(NamedTuple):
    """The row of a replica's lease."""

    version: int
    state: LeaseState


class ReplicaLeases:
    """The lease of this replica, called ``replica``, and those of the others. ``now`` never goes back, in seconds.

    ``state`` tells what the row is to say. ``lost`` is called when the others have taken this replica for ended.
    """

    def __init__(
        self,
        store: Store,
        replica: str,
        state: Callable[[], LeaseState],
        lost: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.now = now
        self._store = store
        self._key = f"{GROUP}/{replica}"
        self._state = state
        self._lost = lost
        self._version = ABSENT
        self._renewed = float("-inf")
        self._sightings = Sightings[LeaseRow](LOOKS, LEASE)
        self._asked: set[str] = set()
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return f"<ReplicaLeases: {self._key}, {len(self._sightings)} replicas seen>"

    # --- one's own --------------------------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """True while no other replica can have taken this one for ended."""
        return self.now() - self._renewed < LEASE / 2

    async def renew(self) -> None:
        """Write the row again. Raises StoreUnavailable."""
        began = self.now()
        try:
            (row,) = await self._store.commit([self.put()])
        except Conflict:
            await self.reconcile()
            (row,) = await self._store.commit([self.put()])
        self.wrote(row, began)

    def put(self, more: int = 0) -> Put:
        """The row as it is to be written next, with so many bytes ``more`` unspent; ``wrote`` is told when it was."""
        state = self._state()
        return Put(
            TABLE,
            self._key,
            orjson.dumps([*state._replace(unspent=state.unspent + max(more, 0))]),
            expected=self._version,
        )

    def wrote(self, row: Row, began: float) -> None:
        """The row was written, by a write that began then."""
        self._version, self._renewed = row.version, began

    async def reconcile(self) -> None:
        """Find the version of the row after a write that met another one. Raises StoreUnavailable."""
        row = await self._store.get(TABLE, self._key)
        if row is not None:
            self._version = row.version  # nobody else writes it: a write of ours that seemed to fail
        elif self._version != ABSENT:
            self._version = ABSENT
            self._lost()

    def delete(self) -> Delete:
        """What lets the others know that this replica ends."""
        return Delete(TABLE, self._key)

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

    async def watch(self) -> dict[str, LeaseRow]:
        """Look at the rows of all replicas: those of the living, this one included. Raises StoreUnavailable."""
        # One that is asked for from now on may be about to write its row.
        missed = set(self._asked)
        rows = await self.rows()
        silent, gone = self._sightings.look(rows, self.now())
        self._ended = (self._ended if len(self._ended) < MOST_ENDED else set()) | missed.union(gone)
        self._ended -= rows.keys()
        self._asked -= missed
        return {key: row for key, row in rows.items() if key == self._key or key not in silent}

    def dead(self) -> list[Delete]:
        """What deletes the rows of the replicas that have ended."""
        return [
            Delete(TABLE, key, expected=seen.found.version)
            for key, seen in self._sightings.all().items()
            if self._sightings.is_silent(key) and key != self._key
        ]

    def is_first(self, living: dict[str, LeaseRow]) -> bool:
        """Tell whether this replica is the one of the living that does what one is enough for."""
        return min(living, default=self._key) == self._key

    async def rows(self) -> dict[str, LeaseRow]:
        """The rows of all replicas, also of those that have ended. Raises StoreUnavailable."""
        return {
            row.key: LeaseRow(row.version, _state(row)) async for row in every_row(self._store, TABLE, GROUP)
        }


def _state(row: Row) -> LeaseState:
    try:
        return LeaseState(*orjson.loads(row.value))
    except (ValueError, TypeError):  # another version wrote it: it lives all the same
        return LeaseState()
