"""Cleanup at regular times: rounds of tasks, each of which one replica does where several share the store.

No task waits for another one. A task of an earlier round that still runs is not started a second time.

Leases: work that one replica at a time does, and that another takes over when that one is gone.

Clocks of machines differ, so no written time decides. A replica takes a lease over when it has seen the lease's row
unchanged for the lease's seconds by its own clock; a holder counts those seconds from before it wrote, so it stops
believing in its lease before another can have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson
from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, StoreUnavailable
from adapter.relay.background import nothing
from adapter.state.port import ABSENT, STORE_ONLY, Conflict, Row, Store, delete_overdue

TABLE = "leases"

RENEWALS = 3
"""Times that a lease is renewed in its seconds, so that one renewal may fail."""

LEFT_BEHIND = 86400.0
"""Seconds after which the row of a lease that nobody renewed or released may be deleted."""


@dataclass(eq=False)
class Lease:
    """The lease of that name, as one holder sees it. It lasts ``seconds`` after each renewal.

    ``now`` is a clock that never goes back, in seconds; ``clock`` gives Unix time in seconds. What is done under a
    lease must be harmless where two do it: a process may be stopped at any point, and go on when its lease is over.
    """

    store: Store
    name: str
    seconds: float
    now: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    _renewals: int = field(default=0, init=False)
    # The row of another holder as it was first seen, and when that was.
    _seen: Row | None = field(default=None, init=False)
    _seen_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._holder = secrets.token_hex(8)
        self._until = float("-inf")

    def __repr__(self) -> str:
        return f"<Lease {self.name!r}: {'held' if self.held else 'not held'}>"

    @property
    def held(self) -> bool:
        """True while nobody else can have the lease."""
        return self.now() < self._until

    async def take(self) -> bool:
        """Take the lease if it is free, or renew it; False: another replica has it. Raises StoreUnavailable."""
        began = self.now()
        row = await self.store.get(TABLE, self.name)
        if row is not None and not self._is_mine(row) and not self._is_over(row, began):
            self._until = float("-inf")
            return False
        self._renewals += 1
        value = orjson.dumps({"holder": self._holder, "renewals": self._renewals})
        version = ABSENT if row is None else row.version
        due = self.clock() + LEFT_BEHIND
        try:
            await self.store.put(TABLE, self.name, value, expected=version, due=due)
        except Conflict:
            self._until = float("-inf")
            return False
        self._until = began + self.seconds
        return True

    async def release(self) -> None:
        """Let the next one have the lease at once. Without effect where it is another's. Raises StoreUnavailable."""
        self._until = float("-inf")
        row = await self.store.get(TABLE, self.name)
        if row is not None and self._is_mine(row):
            with contextlib.suppress(Conflict):
                await self.store.delete(TABLE, self.name, expected=row.version)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew the lease, which was taken before, until the block ends; then release it.

        Where it is lost meanwhile, the block goes on, and ``held`` is False.
        """
        renewing = asyncio.get_running_loop().create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            # Nobody renews it any more, so it ends by itself where it cannot be released.
            with contextlib.suppress(StoreUnavailable):
                await self.release()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / RENEWALS)
            with contextlib.suppress(StoreUnavailable):
                await self.take()

    def _is_mine(self, row: Row) -> bool:
        """True also for a row of which this holder does not know if it was written."""
        found = orjson.loads(row.value)
        return isinstance(found, dict) and found.get("holder") == self._holder

    def _is_over(self, row: Row, began: float) -> bool:
        """Tell whether another holder's row has not changed for the lease's seconds."""
        # Version and value: a lease that was released and taken again begins at the first version.
        if self._seen is None or (self._seen.version, self._seen.value) != (row.version, row.value):
            self._seen, self._seen_at = row, self.now()
            return False
        return began >= self._seen_at + self.seconds


async def tidy(store: Store, now: float) -> None:
    """Delete the leases that were left behind long before ``now`` (Unix seconds). Raises StoreUnavailable."""
    await delete_overdue(store, TABLE, now)


class CleanupTask(NamedTuple):
    """A part of the round. ``alone``: one replica does it for all; else each does what only it can do.

    What is done alone must be harmless where two replicas do it at the same time.
    """

    name: str
    work: Callable[[], Awaitable[None]]
    alone: bool = True


@dataclass(slots=True)
class Cleanup:
    """Runs a round of ``tasks`` every ``interval`` seconds until cancelled.

    ``lease_of`` gives the lease of a task by its name; None where no other replica can be.
    """

    interval: float
    tasks: tuple[CleanupTask, ...]
    log: FilteringBoundLogger
    lease_of: Callable[[str], Lease] | None = None
    on_end: Callable[[str, bool], None] = field(default=nothing, init=False)
    """Is told of the name of a part that ended, and True if it succeeded."""
    _leases: dict[str, Lease] = field(default_factory=dict, init=False)
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.lease_of is not None:
            self._leases = {task.name: self.lease_of(task.name) for task in self.tasks if task.alone}

    async def run(self) -> None:
        """Run rounds until cancelled; then end what is under way, and let others have the leases."""
        beats = RENEWALS if self._leases else 1
        try:
            while True:
                for beat in range(beats):
                    await asyncio.sleep(self.interval / beats)
                    taken = await self._renew()
                    if beat == beats - 1:
                        self._begin_round()
                    else:
                        # Another replica does these no more, and has left its last round, too.
                        for task in taken:
                            self._begin(task)
        finally:
            await self._stop(list(self._under_way.values()))
            await asyncio.gather(*map(_release, self._leases.values()))

    async def run_once(self) -> None:
        """One round to its end."""
        await self._renew()
        self._begin_round()
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    # --- leases -----------------------------------------------------------------------------------------------

    async def _renew(self) -> list[CleanupTask]:
        """Take or renew the leases; the tasks whose leases were not held before."""
        leased = [task for task in self.tasks if task.name in self._leases]
        taken = await asyncio.gather(*map(self._renew_one, leased))
        return [task for task, is_new in zip(leased, taken, strict=True) if is_new]

    async def _renew_one(self, task: CleanupTask) -> bool:
        lease = self._leases[task.name]
        held = lease.held
        try:
            taken = await lease.take()
        except StoreUnavailable:
            taken = lease.held
        if not taken and task.name in self._under_way:
            # Another replica does it now: this one was too slow, or stopped for a while.
            await self._stop([self._under_way[task.name]])
        return taken and not held

    # --- rounds -----------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        for task in self.tasks:
            lease = self._leases.get(task.name)
            if lease is None or lease.held:
                self._begin(task)

    def _begin(self, task: CleanupTask) -> None:
        """Start a part of the round, unless that of an earlier round is still under way."""
        if task.name not in self._under_way:
            self._under_way[task.name] = asyncio.get_running_loop().create_task(self._do(task))

    async def _do(self, task: CleanupTask) -> None:
        STORE_ONLY.set(True)
        succeeded = False
        try:
            await task.work()
            succeeded = True
        except AdapterError as error:
            self.log.warning("the cleanup could not finish its round", task=task.name, why=str(error))
        except Exception:
            # A defect in one round must not end all later ones.
            self.log.exception("the cleanup's round failed unexpectedly", task=task.name)
        finally:
            del self._under_way[task.name]
            self.on_end(task.name, succeeded)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _release(lease: Lease) -> None:
    with contextlib.suppress(StoreUnavailable):
        await lease.release()
