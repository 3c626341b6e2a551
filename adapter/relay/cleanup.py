"""Cleanup at regular times: rounds of tasks, each of which one replica does where several share the store.

No task waits for another one. A task of an earlier round that still runs is not started a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, StoreUnavailable
from adapter.relay.background import nothing
from adapter.relay.lease import RENEWALS, Lease
from adapter.state.port import STORE_ONLY


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
