"""Starts of the program: the flags that only describe it, and ``serve`` until it listens and the memory it then has."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.bench.fronts import ROOT, FrontUnavailable, adapter_settings, end, free_port
from tests.bench.memory import settled_rss
from tests.bench.process import cpu_seconds, ended_seconds, tree
from tests.bench.results import SUBJECT
from tests.bench.run import Run, progress

PART = "start"
ROUNDS = 5
"""Starts are short, so there are more of them than rounds of other parts, except in a quick run."""

MIB = 1024 * 1024

PYTHON = "python alone"
"""The interpreter with nothing to do: what no program in Python can be below."""

DESCRIBED = "--version, CPU ms"
HELPED = "--help, CPU ms"
LISTENING = "serve until it listens, CPU ms"
REST = "RSS then, MiB"

_MOST_LINES = 50
"""Lines of the log before the one that says that the adapter serves."""


async def measure_starts(run: Run) -> None:
    """Run the program several times for each figure. CPU time includes that of processes which have ended."""
    full = run.extent.sizes.rounds > 1
    for number in range(1, (ROUNDS if full else 1) + 1):
        progress(f"start {number}")
        _describe(run)
        with run.noting(PART, SUBJECT):
            await _serve(run, run.room(PART, number))


def _describe(run: Run) -> None:
    figures = run.results.figures
    for front, arguments in ((PYTHON, ("-c", "pass")), (SUBJECT, ("-m", "adapter", "--version"))):
        figures.add(PART, DESCRIBED, front, _ended(*arguments) * 1e3)
    figures.add(PART, HELPED, SUBJECT, _ended("-m", "adapter", "--help") * 1e3)


def _ended(*arguments: str) -> float:
    """CPU seconds of a Python that runs to its end."""
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


async def _serve(run: Run, place: Path) -> None:
    figures = run.results.figures
    config = place / "adapter.yaml"
    settings = adapter_settings(run.upstream, free_port(), secrets.token_hex(16), place)
    config.write_text(json.dumps(settings))
    with _started("serve", "--config", str(config)) as process:
        assert process.stderr is not None
        await asyncio.to_thread(_until_it_serves, process.stderr)
        pids = tree(process.pid)
        spent = cpu_seconds(pids) + ended_seconds(process.pid)
        resident = await settled_rss(process.pid)
    figures.add(PART, LISTENING, SUBJECT, spent * 1e3)
    figures.add(PART, REST, SUBJECT, resident / MIB)


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "adapter", *arguments]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        end(process)
        if process.stderr is not None:
            process.stderr.close()


def _until_it_serves(log: IO[bytes]) -> None:
    """Read the log until the line that is written when the port is open. Raises FrontUnavailable."""
    lines: list[bytes] = []
    while len(lines) < _MOST_LINES and (line := log.readline()):
        if b'"event":"serving"' in line:
            return
        lines.append(line)
    raise FrontUnavailable(f"It did not say that it serves: {b' | '.join(lines[-3:]).decode()[-500:]}")
