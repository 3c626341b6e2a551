"""A process that ends everything a test run has started, also when the run itself was killed.

``python -m tests.reaper RUN FOLDER`` waits until its standard input ends. Only the first process of the run has the
other end of that pipe, so the input ends when that process ends for any reason. Then the reaper kills every process
that has the name of the run in its environment or works in the folder of the run, with all descendants, and removes the
folder. It needs ``/proc`` and kills nothing on systems without it.

The folder is for database servers: those that show what they do in the list of processes overwrite their environment.
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
"""Environment variable with the name of the run. Processes inherit it."""

FOLDER = "MCP_ADAPTER_TEST_FOLDER"
"""Environment variable with the folder of the run, for files that cannot be in the folder of pytest."""

PATIENCE = 10.0
"""Seconds to wait until killed processes have ended."""


@contextlib.contextmanager
def reaped() -> Iterator[None]:
    """Run a reaper for everything that the block starts. Start none in a process of a run that has one."""
    if RUN in os.environ:
        yield
        return
    run, place = secrets.token_hex(8), Path(tempfile.mkdtemp(prefix="mcp-adapter-tests-"))
    place.chmod(0o711)  # a database server with an account of its own has a folder in it
    command = [sys.executable, "-m", "tests.reaper", run, str(place)]
    # In a session of its own, because Ctrl-C in the terminal is for the run and must not end the reaper.
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True):
        os.environ.update({RUN: run, FOLDER: str(place)})
        try:
            yield
        finally:
            del os.environ[RUN], os.environ[FOLDER]


def folder() -> Path:
    """The folder of this run, removed at its end. Outside a test run: the temporary folder of the system."""
    return Path(os.environ.get(FOLDER, tempfile.gettempdir()))


KEEPS_ENVIRONMENT = ("--set-proc-title", "no")
"""Options of a Redis server that works elsewhere than in the folder of the run."""


def processes_of(run: str, place: Path) -> set[int]:
    """The ids of all processes with ``run`` in their environment or working in ``place``, and of their descendants."""
    mark = f"{RUN}={run}".encode()
    children: dict[int, list[int]] = {}
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            pid, stat = int(path.name), (path / "stat").read_bytes().rpartition(b")")[2].split()
            if stat[0] == b"Z":
                continue
            children.setdefault(int(stat[1]), []).append(pid)
            at = (path / "cwd").readlink()
            if at.is_relative_to(place) or mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    family: set[int] = set()
    while found:
        if (pid := found.pop()) not in family:
            family.add(pid)
            found += children.get(pid, [])
    return family


def reap(run: str, place: Path) -> None:
    """Kill all processes of ``run``, whose folder is ``place``, until none is left, or until ``PATIENCE`` is over."""
    deadline = time.monotonic() + PATIENCE
    while (family := processes_of(run, place)) and time.monotonic() < deadline:
        for pid in family:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    reap(sys.argv[1], Path(sys.argv[2]))
    shutil.rmtree(sys.argv[2], ignore_errors=True)
