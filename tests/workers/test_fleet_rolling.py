"""The replacement of workers one by one, as a value."""

from __future__ import annotations

import socket

from adapter.workers.fleet import MOST_FAILURES, Rolling, WorkerProcess
from adapter.workers.serve_plan import ServePlan

PLAN = ServePlan(2, "127.0.0.1", 80, 10, "info", False, "", "", b"")


def begun(number: int) -> Rolling:
    """A rolling whose new worker ``number`` does not serve yet."""
    rolling = Rolling(PLAN, [])
    rolling.numbers.remove(number)
    one, other = socket.socketpair()
    rolling.incoming = WorkerProcess(number, 0, 1, one, 0)
    one.close()
    other.close()
    return rolling


def test_settings_that_nobody_can_serve_are_given_up_at_once() -> None:
    """The workers that are there are better than none."""
    assert not begun(1).failed(0, 1)


def test_later_failures_are_tried_again() -> None:
    """One has served, so the settings are good; the same place is next, after a while, and not for ever."""
    rolling = begun(1)
    rolling.taken = True
    assert rolling.failed(10, 2)
    assert (list(rolling.numbers), rolling.not_before, rolling.waits) == ([1, 2], 12, False)
    for _ in range(MOST_FAILURES - 2):
        rolling.incoming = begun(1).incoming
        assert rolling.failed(10, 2)
    rolling.incoming = begun(1).incoming
    assert not rolling.failed(10, 2)
