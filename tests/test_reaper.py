"""End of the processes that a test run has started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import START_TIMEOUT, start
from tests.reaper import FOLDER, ROOT, RUN
from tests.waiting import until

PARENT = """
import subprocess, time
print(subprocess.Popen(["sleep", "600"], env={}, start_new_session=True).pid)
time.sleep(600)
"""
ORPHAN = """
import subprocess, sys
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
print(subprocess.Popen(["sleep", "600"], env={}, cwd=sys.argv[1], start_new_session=True, **quiet).pid)
"""
TEST = f"""
import asyncio, os, subprocess, sys
from tests import reaper
from tests.e2e.processes import start

async def test_that_does_not_end(tmp_path):
    running = await start([sys.executable, "-uc", {PARENT!r}], tmp_path / "log")
    child = await running.line(20)
    command = [sys.executable, "-c", {ORPHAN!r}, reaper.folder()]
    orphan = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with open(os.environ["STARTED"], "w") as file:
        print(os.getpid(), running.process.pid, child, orphan, reaper.folder(), file=file)
    await asyncio.sleep(600)
"""


@pytest.mark.deep
@pytest.mark.parametrize("workers", ["0", "2"])
async def test_nothing_outlives_a_run_that_was_killed(tmp_path: Path, workers: str) -> None:
    """Workers end, the process of a test ends, and so does its child with another session and environment.

    A process that has neither parent nor environment is known by where it works.
    """
    (tmp_path / "test_it.py").write_text(TEST)
    started = tmp_path / "started"
    tests = [sys.executable, "-m", "pytest", "-n", workers, "-p", "tests.conftest", "-p", "no:cacheprovider"]
    tests += ["-c", str(ROOT / "pyproject.toml"), f"--basetemp={tmp_path / 'run'}", str(tmp_path)]
    argv = ["env", "-u", RUN, "-u", FOLDER, f"STARTED={started}", *tests]
    run = await start(argv, tmp_path / "run.log")
    await until(lambda: started.exists() and started.read_text().endswith("\n"), START_TIMEOUT)
    *pids, folder = started.read_text().split()
    assert len(pids) == 4 and all(Path(f"/proc/{pid}").exists() for pid in pids) and Path(folder).exists()
    run.process.kill()
    async with asyncio.timeout(10):
        await run.process.communicate()
        await until(lambda: not (any(map(is_alive, pids)) or Path(folder).exists()))


def is_alive(pid: str) -> bool:
    """Tell whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
