"""Serving with several workers: the plan is read, the port opened, and a supervisor started."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import TYPE_CHECKING

from adapter.edge.http.seats import open_sockets
from adapter.settings.file.changed import FileWatch
from adapter.startup.failure import Obstacle, StartFailed
from adapter.startup.systemd import ServiceNotifier
from adapter.workers.serve_plan import ReadPlan, begin_reading
from adapter.workers.supervisor import WorkerSupervisor

if TYPE_CHECKING:
    # As in the supervisor, which this process is.
    from structlog.typing import FilteringBoundLogger


def supervise(
    read: ReadPlan,
    read_again: ReadPlan,
    service: ServiceNotifier | None = None,
    watch: FileWatch | None = None,
) -> int:
    """Serve with several workers until SIGINT or SIGTERM, by other settings when they changed: at SIGHUP, and when the
    ``watch`` tells of it.

    ``read`` reads the plan at start and ``read_again`` later, both in a child process; they may raise PlanRefused.
    Returns the exit status. Raises PlanRefused and StartFailed for a start that fails.
    """
    plan = begin_reading(read).result()
    if plan.programs:
        hide_memory()
    logger = cache(partial(_logger, plan.log_level))
    try:
        sockets = open_sockets(*plan.address)
    except OSError as error:
        why = error.strerror or str(error)
        logger().error("cannot listen", host=plan.host, port=plan.port, why=why, setting="core.port")
        raise StartFailed([Obstacle("cannot listen", why, "core.port")]) from None
    supervisor = WorkerSupervisor(plan, sockets, read_again, logger, service, watch=watch)
    status = supervisor.run()
    if supervisor.obstacles:
        raise StartFailed(supervisor.obstacles)
    return status


def _logger(level: str) -> FilteringBoundLogger:
    from adapter import log

    log.configure(level)
    return log.get_logger("adapter.workers")


_PR_SET_DUMPABLE = 4
"""linux/prctl.h."""


def hide_memory() -> None:
    """Make the memory of this process, which holds every secret, unreadable for programs of its user.

    A worker reports it where the system has no such switch.
    """
    # Late: only programs ask for it.
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
