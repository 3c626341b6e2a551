"""The replacement of all workers, one by one: the next one serves before the one in its place stops."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence

from adapter.workers.fleet import WorkerProcess
from adapter.workers.serve_plan import ServePlan

MOST_FAILURES = 5
"""New workers in a row that may end before they serve; then the others stay as they are."""


class Rolling:
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
        return f"<Rolling: {len(self.numbers)} workers to go, {self.incoming} for {self.leaving}>"

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
