"""The leases of replicas that share files: who lives, judged without the clock of any other machine.

Each replica writes its row again and again. Another one takes it for ended when the row is gone, or when its version
has not changed for the length of a lease by that other one's own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import orjson

from adapter.state.paging import every_row
from adapter.state.port import ABSENT, Conflict, Delete, Put, Row, Store

TABLE = "file_replicas"
GROUP = "storage"

RENEWAL = 5.0
"""Seconds between two writes of a replica's row."""

LEASE = 20.0
"""Seconds without a write after which a replica counts as ended."""

LONGEST_GAP = LEASE / 2
"""Seconds between two looks at the leases after which what was seen before the gap tells nothing."""

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
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked = float("-inf")
        self._asked: set[str] = set()
        self._ended: set[str] = set()

    def __repr__(self) -> str:
        return f"<ReplicaLeases: {self._key}, {len(self._seen)} replicas seen>"

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
        seen = self._seen.get(key)
        if seen is None:
            self._asked.add(key)
            return False
        return self._is_over(seen[1])

    def _is_over(self, since: float) -> bool:
        """Tell whether a row had not changed since then for the length of a lease, when it was looked at last.

        Time without a look does not count: nobody could renew a lease while the store was away.
        """
        return self._looked - since >= LEASE

    async def watch(self) -> dict[str, LeaseRow]:
        """Look at the rows of all replicas: those of the living, this one included. Raises StoreUnavailable."""
        missed = self._asked | self._seen.keys()
        rows = await self.rows()
        now = self.now()
        # After a gap, of the store or of this process, the others have time for a write of their own.
        before = self._seen if now - self._looked <= LONGEST_GAP else {}
        self._looked = now
        self._seen = {
            key: known
            if (known := before.get(key)) is not None and known[0] == row.version
            else (row.version, now)
            for key, row in rows.items()
        }
        # One that was known before its row was found missing has ended; a new one may be about to write its row.
        self._ended = (self._ended if len(self._ended) < MOST_ENDED else set()) | missed
        self._ended -= rows.keys()
        self._asked -= missed
        return {
            key: row for key, row in rows.items() if key == self._key or not self._is_over(self._seen[key][1])
        }

    def dead(self) -> list[Delete]:
        """What deletes the rows of the replicas that have ended."""
        return [
            Delete(TABLE, key, expected=version)
            for key, (version, since) in self._seen.items()
            if self._is_over(since) and key != self._key
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
