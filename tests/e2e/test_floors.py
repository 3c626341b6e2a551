"""The lowest versions of packages that ``pyproject.toml`` allows: the adapter works with all of them together."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.e2e.provision import ROOT, floors, requirements_of_floors

pytestmark = pytest.mark.e2e

PARTS = (
    "edge/api/test_embedding.py",
    "edge/files/test_multipart.py",
    "oauth/test_issuer.py",
    "pipeline/test_jwt.py",
    "pipeline/test_validation_stage_schema_checks.py",
    "rules/schema/test_checker.py",
    "settings/file/test_load.py",
    "state/redis/test_store_failures.py",
    "telemetry/test_metric_registry.py",
    "upstream/test_outgoing.py",
    # Threads of exporters draw random numbers after its end, and property tests want them to themselves.
    "telemetry/test_exporting.py",
)
"""Tests, quick ones, of what the adapter uses of other packages."""


def test_the_adapter_works_with_the_lowest_versions() -> None:
    """Each is a version that exists, all can be installed together, and nothing newer is used unsaid."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(floors()), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not deep"]
    done = subprocess.run(
        [*command, *(str(Path("tests") / part) for part in PARTS)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_every_package_has_a_lowest_version() -> None:
    """Of those that users get: without one, pip may take any that lies around."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(requirements_of_floors(project)) > len(project["dependencies"])
