"""The supervisor's decisions that need no processes; what it does with them is in tests/e2e/test_workers.py."""

from __future__ import annotations

import subprocess
import sys

from adapter.workers.fleet import LONGEST_DELAY, delay_after


def test_a_worker_that_ends_again_and_again_is_started_later_each_time() -> None:
    """The first end costs nothing, later ones twice as long as the one before, up to a bound."""
    delays = [delay_after(failures) for failures in range(12)]
    assert delays[:6] == [0, 0, 0.5, 1, 2, 4]
    assert delays[-1] == LONGEST_DELAY == delay_after(10_000)


def test_the_supervisor_loads_nothing_that_serving_needs() -> None:
    """It stays as small as it begins: no event loop, no settings, no log, and of the house what it needs itself."""
    loaded = "import sys, adapter.cli, adapter.workers.supervisor; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout
    heavy = {
        "asyncio",
        "uvloop",
        "pydantic",
        "structlog",
        "ssl",
        "yaml",
        "sqlite3",
        "adapter.app",
        "adapter.log",
    }
    assert heavy.isdisjoint(names.split())
