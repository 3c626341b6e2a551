"""``python -m tests.suite``: runs pytest with the options that it is given, on several processes at once.

A test of real processes, browsers and other people's clients may fail because everything else on the machine fails to
give it time. So a few tests that failed run once more, alone. One that passes then is named at the end: it is unsteady,
and a defect of the test or of the adapter until somebody has found out why. Exit status 1 if one fails twice, or if
more failed than ``MOST_AGAIN``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST_AGAIN = 4
"""Tests that run again; more failures than that have a common reason."""

FAILED = 1
NONE_SELECTED = 5
"""Exit statuses of pytest."""

STOPS = ("-x", "--exitfirst", "--maxfail")
"""Options that end a run before its last test, so that those that follow a failure have not run."""


def main(options: Sequence[str]) -> int:
    """Run the tests that ``options`` of pytest select. Returns an exit status, 0 also if none was selected."""
    with tempfile.TemporaryDirectory() as cache:
        status = _pytest(cache, "--dist", "worksteal", *options)
        failed = _failed(Path(cache))
        whole = not any(option.startswith(STOPS) for option in options)
        if status == FAILED and whole and 0 < len(failed) <= MOST_AGAIN:
            status = _pytest(cache, "-n", "0", *failed)
            if status == 0:
                print("UNSTEADY: failed beside other tests, passed alone:", *failed, sep="\n  ", flush=True)
    return 0 if status == NONE_SELECTED else status


def _pytest(cache: str, *options: str) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *options]
    return subprocess.run(command, check=False).returncode


def _failed(cache: Path) -> list[str]:
    """The tests that failed, and those whose fixtures did, by their node ids."""
    record = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(record.read_text())) if record.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
