"""The workers that run, the folder of their numbers, and their replacement one by one."""

from __future__ import annotations

import asyncio
import socket
import sys

from adapter.workers.fleet import BEGAN, MOST_FAILURES, MetricFiles, WorkerProcess, WorkerReplacement
from adapter.workers.serve_plan import ServePlan

PROGRAM = """
import os, resource
from adapter.workers.fleet import Fleet
from adapter.workers.serve_plan import ServePlan

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
plan = ServePlan(2, "127.0.0.1", 80, 10, "info", False, "", "", b"", metrics=True)
worker = Fleet(lambda: None, lambda plan: None).begin(1, plan, (), 0.0, first=True)
os.waitpid(worker.pid, 0)
told = worker.channel.recv(4096)
assert told.startswith(b"f") and b"set TMPDIR" in told, told
"""


async def test_a_full_disk_does_not_end_the_supervisor() -> None:
    """Where no folder for the numbers of metrics can be made, the worker that was to count tells why."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    text, _ = await process.communicate()
    assert process.returncode == 0, text
    assert b"the numbers of workers cannot be kept" in text


# --- the folder of the numbers of workers ------------------------------------------------------------------------


def test_what_a_worker_counted_outlives_it_and_its_gauges_do_not() -> None:
    """Until the supervisor ends, which leaves nothing behind."""
    files = MetricFiles()
    assert files.folder.stat().st_mode & 0o777 == 0o700
    names = ("counter_1.db", "gauge_livesum_1.db", "gauge_livemax_1.db", "gauge_livemax_2.db")
    for name in names:
        (files.folder / name).touch()
    files.left(1)
    assert {each.name for each in files.folder.iterdir()} == {BEGAN, "counter_1.db", "gauge_livemax_2.db"}
    files.close()
    files.close()
    assert not files.folder.exists()


# --- the replacement of workers one by one, as a value -----------------------------------------------------------


PLAN = ServePlan(2, "127.0.0.1", 80, 10, "info", False, "", "", b"")


def begun(number: int) -> WorkerReplacement:
    """A rolling whose new worker ``number`` does not serve yet."""
    rolling = WorkerReplacement(PLAN, [])
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
