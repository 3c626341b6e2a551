"""The workers that run."""

from __future__ import annotations

import asyncio
import sys

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
