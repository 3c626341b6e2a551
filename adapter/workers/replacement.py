"""The places of workers, and what is under way to put others into them or to have them serve by other settings."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from adapter.workers.fleet import WorkerProcess
from adapter.workers.serve_plan import ServePlan

STEADY_SECONDS = 10.0
"""Time that a worker serves after which its end has nothing to do with its start."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
"""Seconds before a worker is started again that has ended twice in a row; each time twice as long."""

MOST_FAILED_STARTS = 3
"""Workers in a row that may end before they serve, while no other serves; then the supervisor gives up."""

HANDOVER_SECONDS = 60.0
"""Time that workers get to serve by other settings; one that is later is replaced, as all are then."""


def delay_after(failures: int) -> float:
    """Seconds to wait after so many ends in a row; the first costs nothing."""
    return 0.0 if failures < 2 else float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures - 2, 30)))


@dataclass
class WorkerSlot:
    """The place of one worker. ``failures`` are its ends in a row, each soon after it had begun."""

    worker: WorkerProcess | None = None
    failures: int = 0
    not_before: float = 0.0

    def ended(self, now: float, lived: float) -> None:
        """Note that the worker has ended, which has served for ``lived`` seconds."""
        self.failures = 1 if lived >= STEADY_SECONDS else self.failures + 1
        self.not_before = now + delay_after(self.failures)


class SettingsHandover:
    """The hand-over of other settings to workers, of which ``waits`` are to answer until ``not_after``.

    ``before`` is the plan that was served before.
    """

    def __init__(self, before: ServePlan, waits: set[WorkerProcess], not_after: float) -> None:
        self.before = before
        self.waits = waits
        self.not_after = not_after

    def __repr__(self) -> str:
        return f"<SettingsHandover: {len(self.waits)} workers to answer>"


MOST_FAILURES = 5
"""New workers in a row that may end before they serve; then the others stay as they are."""


class WorkerReplacement:
    """A replacement under way, of workers by others that serve ``plan`` from ``sockets``.

    ``incoming`` is the new worker that does not serve yet, and ``leaving`` the old one that has not ended yet.
    ``taken``: a new worker has served, so the plan can be served.
    """

    def __init__(self, plan: ServePlan, sockets: Sequence[socket.socket]) -> None:
        self.plan = plan
        self.sockets = sockets
        self.numbers = deque(range(1, plan.workers + 1))
        self.incoming: WorkerProcess | None = None
        self.leaving: WorkerProcess | None = None
        self.taken = False
        self.failures = 0
        self.not_before = 0.0

    def __repr__(self) -> str:
        return f"<WorkerReplacement: {len(self.numbers)} workers to go, {self.incoming} for {self.leaving}>"

    @property
    def waits(self) -> bool:
        """True while a worker is on its way in or out."""
        return self.incoming is not None or self.leaving is not None

    def failed(self, now: float, delay: float) -> bool:
        """Note that the new worker has ended. Returns False if no other is to be tried.

        A plan that nobody could serve yet is given up at once; later failures have another reason, which may pass.
        """
        assert self.incoming is not None, "only the new worker fails"
        self.numbers.appendleft(self.incoming.number)
        self.incoming = None
        self.failures += 1
        self.not_before = now + delay
        return self.taken and self.failures < MOST_FAILURES
