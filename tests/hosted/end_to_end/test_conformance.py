"""The public conformance suite against hosted tools behind the real adapter, as far as it is about tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import provision
from tests.e2e.conformance import FAILED, run
from tests.hosted.conformance_tools import SCENARIOS, conformance_upstream
from tests.hosted.serving import front

NOT_OURS = {
    "sep-2575-server-sends-prompts-list-changed-on-subscription",
    "sep-2575-server-sends-tools-list-changed-on-subscription",
}
"""Checks that the suite skips, as it must, for a server that has no prompts, and tools that never change."""


@pytest.mark.e2e
@pytest.mark.parametrize("revision", SCENARIOS)
async def test_hosted_tools_conform(revision: str, tmp_path: Path) -> None:
    """Every scenario that fits a server of tools passes, without a failure or a warning."""
    provision.node()
    async with front(conformance_upstream(), tmp_path / "files") as adapter:
        checks = await run(adapter.url, revision, tmp_path / "results")
    ran = {name: checks.get(name, []) for name in SCENARIOS[revision]}
    assert [name for name, found in ran.items() if not found] == []
    problems = [
        (name, check)
        for name, found in ran.items()
        for check in found
        if check.status in FAILED and (check.status != "SKIPPED" or check.id not in NOT_OURS)
    ]
    assert problems == []
