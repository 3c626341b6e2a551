"""The unit of deploy/, as far as systemd can judge a file."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from adapter.cli import BAD_SETTINGS
from adapter.settings.core import Core
from adapter.workers.fleet import STOP_SECONDS
from tests.missing import Missing

UNIT = Path(__file__).parents[1] / "deploy" / "systemd" / "mcp-adapter.service"
MOST_EXPOSED = 1.5
"""Of 10; systemd calls everything below 2 fine."""


@pytest.fixture
def service() -> dict[str, list[str]]:
    section = UNIT.read_text().partition("[Service]\n")[2].partition("\n[Install]")[0]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if (program := shutil.which("systemd-analyze")) is None:
        raise Missing("systemd-analyze is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Every line is known, once the program is where it says."""
    unit = tmp_path / UNIT.name
    program = tmp_path / "mcp-adapter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text(UNIT.read_text().replace("/opt/mcp-adapter/bin/mcp-adapter", str(program)))
    found = analyzed("verify", unit)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_a_service_is_little_exposed() -> None:
    """systemd's own figure for everything that a break-in could reach."""
    found = analyzed("security", "--offline=true", UNIT)
    (exposure,) = re.findall(r"Overall exposure level for \S+ ([0-9.]+)", found.stdout)
    assert float(exposure) <= MOST_EXPOSED


def test_a_service_may_use_nothing_but_its_own(service: dict[str, list[str]]) -> None:
    """It has no right of root, writes its own directory only, and reads no home."""
    one = {name: values[0] for name, values in service.items()}
    assert one["DynamicUser"] == one["NoNewPrivileges"] == one["ProtectHome"] == one["PrivateTmp"] == "yes"
    assert (one["ProtectSystem"], one["CapabilityBoundingSet"]) == ("strict", "")
    assert one["WorkingDirectory"] == f"/var/lib/{one['StateDirectory']}"
    assert "@system-service" in service["SystemCallFilter"]


def test_the_times_and_statuses_are_those_of_the_adapter(service: dict[str, list[str]]) -> None:
    """A stop is not cut short, settings that cannot be used are not tried again, and a silent loop is noticed."""
    one = {name: values[0] for name, values in service.items()}
    assert one["Type"] == "notify" and float(one["WatchdogSec"]) == 30
    assert float(one["TimeoutStopSec"]) >= Core().shutdown_grace_seconds + STOP_SECONDS
    assert (one["RestartPreventExitStatus"], one["Restart"]) == (str(BAD_SETTINGS), "on-failure")
    assert "-HUP $MAINPID" in one["ExecReload"]
