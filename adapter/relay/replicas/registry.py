"""The replicas that share a store: this one's row, renewed every few seconds, and those of the others.

The epoch of a shared store: whether it still is the one that this process knows, or has lost its data meanwhile.

A store that is restarted without its data, emptied, or replaced behind its address looks like any other one. So it has
a row with a random value that is written once. Whoever finds another value, or none, knows that rows are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import StoreUnavailable
from adapter.rules.access.replicas import (
    Challenges,
    Found,
    ReplicaRecord,
    Sightings,
    decode_replica,
    encode_replica,
    is_replica_id,
)
from adapter.state.port import ABSENT, Conflict, Row, Store, StoreListener, every_row, store_only

EPOCH_TABLE = "epoch"
KEY = "epoch"

INTERVAL = 3.0
"""Seconds between two looks at the row, where nothing gives a reason for an earlier one."""

PACE = 0.5
"""Seconds between two looks at least: some stores give a reason all the time."""


class StoreEpoch(StoreListener):
    """Looks at the row of the epoch. A StoreListener; ``clock`` gives Unix time in seconds.

    ``shared`` are awaited with each look, to have what all processes hold in common be what the store says; what it has
    lost, whoever holds it writes again. ``on_loss`` are called when the store has lost rows; they return at once.
    """

    def __init__(self, store: Store, clock: Callable[[], float], log: FilteringBoundLogger) -> None:
        self.shared: list[Callable[[], Awaitable[None]]] = []
        self.on_loss: list[Callable[[], None]] = []
        self.losses = 0
        self.last_loss = 0.0
        self._store = store
        self._clock = clock
        self._log = log
        self._value: bytes | None = None
        self._looking = asyncio.Lock()
        self._doubt = asyncio.Event()
        store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<StoreEpoch: {self.losses} losses>"

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._doubt.clear()
            try:
                await self.look()
            except StoreUnavailable:
                # Who watches the store tells of it.
                pass
            except Exception:
                self._log.exception("what replicas have in common could not be compared")
            await asyncio.sleep(PACE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL - PACE):
                    await self._doubt.wait()

    async def look(self) -> None:
        """Look at the row now. Raises StoreUnavailable, also while others go on in memory."""
        with store_only():
            async with self._looking:
                value = await self._read()
                await asyncio.gather(*(share() for share in self.shared))
                before, self._value = self._value, value
                if before not in (None, value):
                    self.lost()

    async def _read(self) -> bytes:
        """The value of the row, which is written now where there is none."""
        row = await self._store.get(EPOCH_TABLE, KEY)
        if row is None:
            with contextlib.suppress(Conflict):
                return (
                    await self._store.put(EPOCH_TABLE, KEY, secrets.token_bytes(16), expected=ABSENT)
                ).value
            return await self._read()
        return row.value

    def lost(self, *, is_older: bool = False) -> None:
        """Have everybody forget what they know of the store. ``is_older``: an older state of it is back."""
        self.losses += 1
        self.last_loss = self._clock()
        why = "an older state of it is back" if is_older else "another one is there, or an empty one"
        self._log.warning("the state store has lost its data", why=why, setting="state_persistence")
        for listener in self.on_loss:
            try:
                listener()
            except Exception:
                # The others must hear of it all the same: nobody looks again at this epoch.
                self._log.exception("rows that are gone could not be forgotten")

    # --- words of the store -----------------------------------------------------------------------------------

    def rows_unknown(self) -> None:
        """See StoreListener: the connection may lead to another store now."""
        self._doubt.set()


TABLE = "replicas"

ACCEPTED = 20
"""Challenges of a replica that count at the same time, the last ones: those of a minute."""


class ReplicaTimes(NamedTuple):
    """A row is written every ``interval`` seconds.

    A replica has gone when its row did not change in ``looks`` looks, and for ``lease`` seconds.
    """

    interval: float = 3.0
    looks: int = 4
    lease: float = 12.0


TERMS = ReplicaTimes()


class OtherReplica(NamedTuple):
    """A replica as this one sees it. ``age``: seconds since its row changed last, by the clock of this process."""

    id: str
    record: ReplicaRecord
    age: float


def replica_id() -> str:
    """A new id, which no other process has."""
    return secrets.token_hex(8)


@dataclass(eq=False)
class Replicas:
    """The registry of replicas. ``version`` is that of the adapter, ``clock`` gives Unix time in seconds. ``key``, by
    which they know each other, is set before the first request comes.

    A replica that has gone loses its row: whoever deletes it at the version at which it was silent decides that, so
    that a replica which only was slow learns of it when it renews its row. It then calls ``on_displaced``: its
    sessions may live elsewhere by now. ``on_gone`` are called with the id of each replica that has gone. A row that is
    gone because the store has lost it, as ``epoch`` tells, is only written again.
    """

    store: Store
    id: str
    version: str
    clock: Callable[[], float]
    log: FilteringBoundLogger
    terms: ReplicaTimes = TERMS
    key: bytes = field(default=b"", init=False)
    on_displaced: list[Callable[[], None]] = field(default_factory=list, init=False)
    on_gone: list[Callable[[str], None]] = field(default_factory=list, init=False)
    _version: int | None = field(default=None, init=False)
    _losses: int = field(default=0, init=False)
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _beat: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.challenges = Challenges(ACCEPTED)
        self.epoch = StoreEpoch(self.store, self.clock, self.log)
        self.sightings = Sightings[Found](self.terms.looks, self.terms.lease)
        incarnation, self._next = secrets.token_hex(16), secrets.token_hex(16)
        self._record = ReplicaRecord("", self.version, self.clock(), incarnation, "")

    def __repr__(self) -> str:
        return f"<Replicas: {self.id!r} sees {len(self.sightings.seen)} others>"

    # --- this one ---------------------------------------------------------------------------------------------

    async def join(self, address: str) -> None:
        """Let the others know this replica by its address (a URL) until ``close``. Raises StoreUnavailable."""
        self._record = replace(self._record, address=address)
        row = await self.store.get(TABLE, self.id)
        # One that ended without a word, under the id of the settings: it is not waited for.
        self._version = ABSENT if row is None else row.version
        await self.renew()
        await self.look()
        self._beat = asyncio.get_running_loop().create_task(self._run())

    async def come_back(self) -> None:
        """Write the row again that the store has lost, if there was one. Raises StoreUnavailable."""
        async with self._renewing:
            if self._version is not None:
                await self._renew()

    async def leave(self) -> None:
        """Tell the others that no more requests are taken; those under way go on. A failure of the store is ignored."""
        self._record = replace(self._record, leaving=True)
        if self._version is not None:
            with contextlib.suppress(StoreUnavailable):
                await self.renew()

    async def close(self) -> None:
        """Remove the row. A failure of the store is ignored: the others notice the silence."""
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)
        # One that is coming back would write the row again behind this.
        async with self._renewing:
            if self._version is not None:
                self._version = None
                await self._remove()

    async def _remove(self) -> None:
        with contextlib.suppress(StoreUnavailable, Conflict):
            row = await self.store.get(TABLE, self.id)
            found = None if row is None else _read(row)
            if row is not None and found is not None and found.incarnation == self._record.incarnation:
                await self.store.delete(TABLE, self.id, expected=row.version)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.terms.interval)
            try:
                await self.beat()
            except StoreUnavailable:
                # Who watches the store tells of it.
                continue
            except Exception:
                # Without its row the others would take its sessions over.
                self.log.exception("the row of this replica could not be renewed")

    async def beat(self) -> None:
        """Write the row anew, and look at those of the others. Raises StoreUnavailable.

        Also while others go on in memory: there all other replicas stand still, and would seem gone.
        """
        with store_only():
            await self.renew()
            await self.look()

    async def renew(self) -> None:
        """Write the row anew, with another challenge. Raises StoreUnavailable."""
        # One at a time: each goes by the version that the one before it has written.
        async with self._renewing:
            await self._renew()

    async def _renew(self) -> None:
        losses = self.epoch.losses
        record = replace(self._record, challenge=self._next)
        # First: the others may read the row before this process learns that it was written. While the store fails
        # it is the same one, so that the last that they have read goes on to count.
        self.challenges.announce(record.challenge)
        try:
            row = await self.store.put(TABLE, self.id, encode_replica(record), expected=self._version)
        except Conflict:
            row = await self._regain(record)
        else:
            self._losses = losses
        self._version = row.version
        self._next = secrets.token_hex(16)

    async def _regain(self, record: ReplicaRecord) -> Row:
        """Write the row that another process has changed, or that a failed attempt has written all the same."""
        row = await self.store.get(TABLE, self.id)
        found = None if row is None else _read(row)
        if row is not None and found is not None and found.incarnation == record.incarnation:
            if self._version is not None and row.version < self._version and not await self._has_lost():
                # With the epoch of then.
                self.epoch.lost(is_older=True)
            return await self.store.put(TABLE, self.id, encode_replica(record), expected=row.version)
        if row is None and await self._has_lost():
            self._version = ABSENT
            return await self.store.put(TABLE, self.id, encode_replica(record))
        # Also where this write fails, or only seems to: what it leaves is no older state of the store.
        self._version = ABSENT
        if row is None:
            self.log.warning("the other replicas took this one for gone", replica=self.id)
        else:
            taken, self.id = self.id, f"{self.id[:55]}-{secrets.token_hex(4)}"
            self.log.error(
                "another process has the id of this replica",
                replica=taken,
                now=self.id,
                setting="core.replica.id",
            )
        for displaced in self.on_displaced:
            displaced()
        return await self.store.put(TABLE, self.id, encode_replica(record))

    async def _has_lost(self) -> bool:
        """Tell whether the store has lost its data since the row was written as expected."""
        await self.epoch.look()
        losses, self._losses = self._losses, self.epoch.losses
        return losses != self._losses

    # --- the others -------------------------------------------------------------------------------------------

    def others(self) -> list[OtherReplica]:
        """The other replicas, by their ids."""
        now = time.monotonic()
        return [
            OtherReplica(replica, sighting.found.record, now - sighting.since)
            for replica, sighting in sorted(self.sightings.seen.items())
        ]

    async def find(self, replica: str, *, afresh: bool = False) -> ReplicaRecord | None:
        """The row of another replica that takes requests, None if there is none. Raises StoreUnavailable.

        It is read from the store where it is not known here, or ``afresh``.
        """
        sighting = None if afresh else self.sightings.seen.get(replica)
        if sighting is None:
            if not is_replica_id(replica) or replica == self.id:
                return None
            row = await self.store.get(TABLE, replica)
            record = None if row is None else _read(row)
            if row is None or record is None:
                self._forget(replica)
                return None
            sighting = self.sightings.meet(replica, Found(record, row.version), time.monotonic())
        found = sighting.found.record
        # One whose address is now this one's ended without a word a moment ago.
        return None if found.leaving or found.address == self._record.address else found

    async def look(self) -> None:
        """Look at the rows of all, and delete those of replicas that have gone. Raises StoreUnavailable."""
        rows = await self._rows()
        rows.pop(self.id, None)
        silent, gone = self.sightings.look(rows, time.monotonic())
        # Before the store may fail: no later look finds these.
        for replica in gone:
            self._forget(replica)
        for replica in silent:
            with contextlib.suppress(Conflict):
                await self.store.delete(TABLE, replica, expected=rows[replica].version)
                self.log.warning("a replica has gone without a word", replica=replica)
                self._forget(replica)

    def _forget(self, replica: str) -> None:
        self.sightings.seen.pop(replica, None)
        for listener in self.on_gone:
            listener(replica)

    async def _rows(self) -> dict[str, Found]:
        return {
            row.key: Found(record, row.version)
            async for row in every_row(self.store, TABLE)
            if (record := _read(row))
        }


def _read(row: Row) -> ReplicaRecord | None:
    """The record of a row, None where another version of the adapter wrote what this one cannot read."""
    try:
        return decode_replica(row.value)
    except ValueError:
        return None
