"""The run of all tests: a few that fail run once more alone, and are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.suite import MOST_AGAIN

HOUSE = Path(__file__).parent.parent

TWICE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_passes_the_second_time(number):
    seen = Path(__file__).with_name(f"seen{{number}}")
    again = seen.exists()
    seen.touch()
    assert again or {always}
"""


def run(place: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a suite that consists of one module."""
    (place / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "tests.suite", "-q", *(options or ("-n", "2")), "test_it.py"]
    environment = os.environ | {"PYTHONPATH": str(HOUSE)}
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_suite_that_passes_runs_once(tmp_path: Path) -> None:
    """Nothing is named where nothing failed."""
    ran = run(tmp_path, TWICE.format(number=3, always=True))
    assert ran.returncode == 0
    assert "UNSTEADY" not in ran.stdout


def test_a_few_failures_run_again_and_are_named(tmp_path: Path) -> None:
    """Tests that pass alone do not fail the run, but stand at its end."""
    ran = run(tmp_path, TWICE.format(number=2, always=False))
    assert ran.returncode == 0, ran.stdout
    assert "test_passes_the_second_time[1]" in ran.stdout.partition("UNSTEADY")[2]


def test_many_failures_are_a_failure(tmp_path: Path) -> None:
    """More failures than can be an accident are not tried again."""
    assert run(tmp_path, TWICE.format(number=MOST_AGAIN + 1, always=False)).returncode == 1


def test_a_test_that_fails_twice_is_a_failure(tmp_path: Path) -> None:
    """The second run decides."""
    assert run(tmp_path, "def test_never():\n    assert False\n").returncode == 1


def test_a_run_that_stops_at_a_failure_is_not_repeated(tmp_path: Path) -> None:
    """Nobody knows whether the tests that did not run would have passed."""
    assert run(tmp_path, TWICE.format(number=2, always=False), "-x").returncode == 1


def test_nothing_selected_is_no_failure(tmp_path: Path) -> None:
    """A selection that one of the two parts of the suite has nothing of passes."""
    assert run(tmp_path, "").returncode == 0
