"""The locks of files and state that a supervisor holds for its workers."""

from __future__ import annotations

from pathlib import Path

from adapter.state.lock_file import StateLock
from adapter.workers.serve_plan import ServePlan
from adapter.workers.storage_lock import StorageLock


class PlanLocks:
    """The locks of the plans that workers serve, or are to serve."""

    def __init__(self) -> None:
        self._held: dict[str, StorageLock | StateLock] = {}

    def __repr__(self) -> str:
        return f"<PlanLocks: {', '.join(self._held)}>"

    def take(self, plan: ServePlan, wait: float) -> None:
        """Take the locks of the plan's files and state, beside those of plans before it: workers may still use both.

        Raises RootTaken, StateTaken when one is not free within ``wait`` seconds.
        """
        if plan.locked and plan.locked not in self._held:
            self._held[plan.locked] = StorageLock(Path(plan.locked), wait)
        if plan.state and plan.state not in self._held:
            self._held[plan.state] = StateLock(Path(plan.state), wait)

    def keep(self, plan: ServePlan) -> None:
        """Let go of the locks of all other plans. A worker that serves one of them has them itself until it ends."""
        for name in self._held.keys() - {plan.locked, plan.state}:
            self._held.pop(name).close()
