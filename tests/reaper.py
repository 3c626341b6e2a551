"""The end of everything that a run of the tests has started, also when the run itself was killed.

Each run has a reaper, ``python -m tests.reaper RUN FOLDER``: a small process whose standard input only the run's first
process can close. When that ends, in whatever way, the reaper kills every process in whose environment the run is
named, with all descendants of those, and removes the run's folder. It needs Linux's ``/proc`` and does nothing where
there is none.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUN = "MCP_ADAPTER_TEST_RUN"
"""The variable of the environment that names the run; processes inherit it."""

FOLDER = "MCP_ADAPTER_TEST_FOLDER"
"""The variable that names the run's folder, for what must not lie below pytest's."""

PATIENCE = 10.0
"""Seconds until killed processes have gone."""


@contextlib.contextmanager
def reaped() -> Iterator[None]:
    """Have all that is started within the block ended after it. A process of a run that has a reaper starts none."""
    if RUN in os.environ:
        yield
        return
    run, place = secrets.token_hex(8), Path(tempfile.mkdtemp(prefix="mcp-adapter-tests-"))
    place.chmod(0o711)  # the account of a database server has a folder in it
    command = [sys.executable, "-m", "tests.reaper", run, str(place)]
    # A group of its own: the terminal's Ctrl-C is for the run, and not for who ends it.
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True):
        os.environ.update({RUN: run, FOLDER: str(place)})
        try:
            yield
        finally:
            del os.environ[RUN], os.environ[FOLDER]


def folder() -> Path:
    """The folder of this run, which goes with it; in a program that is no run of the tests, the system's."""
    return Path(os.environ.get(FOLDER, tempfile.gettempdir()))


def processes_of(run: str) -> set[int]:
    """The processes that are named after ``run``, and their descendants, which may have another environment."""
    mark = f"{RUN}={run}".encode()
    children: dict[int, list[int]] = {}
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid, stat = int(path.name), (path / "stat").read_text().rpartition(")")[2].split()
            if stat[0] == "Z":
                continue
            children.setdefault(int(stat[1]), []).append(pid)
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    family: set[int] = set()
    while found:
        if (pid := found.pop()) not in family:
            family.add(pid)
            found += children.get(pid, [])
    return family


def reap(run: str) -> None:
    """Kill all processes of ``run``, and those that they start meanwhile, and return when they have gone."""
    deadline = time.monotonic() + PATIENCE
    while (family := processes_of(run)) and time.monotonic() < deadline:
        for pid in family:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    reap(sys.argv[1])
    shutil.rmtree(sys.argv[2], ignore_errors=True)
