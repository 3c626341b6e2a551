"""What a machine lacks skips the tests that need it, with the reason; in CI they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent

NEEDING = """
import pytest
from tests.missing import Missing

@pytest.fixture(scope="session")
def server():
    raise Missing("server is not installed")

def test_one(server): ...

def test_other(server): ...

def test_by_itself():
    raise Missing("node is not installed")
"""


@pytest.mark.parametrize(("ci", "outcome"), [("", "3 skipped"), ("true", "failed")])
def test_what_is_missing_skips(tmp_path: Path, ci: str, outcome: str) -> None:
    """By a fixture that several tests share, and by a test itself."""
    (tmp_path / "test_it.py").write_text(NEEDING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-rs", "test_it.py"]
    environment = os.environ | {"PYTHONPATH": str(HOUSE), "CI": ci}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert outcome in ran.stdout.splitlines()[-1], ran.stdout + ran.stderr
    assert "server is not installed" in ran.stdout and "node is not installed" in ran.stdout
    assert ("skipped, which CI does not allow" in ran.stdout) == bool(ci)
