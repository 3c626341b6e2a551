"""The public conformance suite through the adapter, in front of servers over HTTP and of processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.conformance import (
    FAILED,
    REVISIONS,
    Check,
    Verdict,
    comparable,
    compare,
    directly,
    run,
    scenarios,
    table,
)
from tests.e2e.over_stdio import serving
from tests.e2e.processes import Server
from tests.e2e.provision import ROOT

HTTP_ONLY = {"2025-11-25": {"server-sse-multiple-streams", "server-sse-polling"}, "2026-07-28": set[str]()}
"""Scenarios about what a server does with its own event streams. A process has none, and the adapter answers these
calls with JSON: the suite notes that as information, and finds no fault (docs/stdio.md, "Sessions and streams")."""


@pytest.mark.e2e
async def test_every_scenario_is_the_same_through_the_adapter(
    node: Path, replicas_programs: None, tmp_path: Path
) -> None:
    """Both revisions: every scenario passes directly, and each check comes out the same through the adapter.

    So it does where each request may reach another process: replicas on one Redis behind nginx, workers on SQLite.
    """
    direct = await directly(tmp_path)
    for name, shape in {"alone": {}, "replicas": {"replicas": 3}, "workers": {"workers": 3}}.items():
        place = tmp_path / name
        place.mkdir()
        verdicts = await compare(place, direct, **shape)
        assert {verdict.revision for verdict in verdicts} == set(REVISIONS)
        assert not [verdict for verdict in verdicts if verdict.problems], (name, table(verdicts))


@pytest.mark.e2e
@pytest.mark.parametrize("revision", REVISIONS)
async def test_scenarios_over_stdio_are_those_of_the_http_twin(
    revision: str, node: Path, tmp_path: Path
) -> None:
    """The same server as a process: no check fails, and all but those of HTTP_ONLY are those of HTTP directly."""
    command = (sys.executable, ["-m", "tests.e2e.conformance_server", "stdio"])
    async with (
        Server("tests.e2e.conformance_server", tmp_path) as twin,
        serving(tmp_path, command, cwd=str(ROOT)) as front,
    ):
        direct = await run(twin.url, revision, tmp_path / "direct")
        found = await run(front.url, revision, tmp_path / "results")
    assert set(found) == set(await scenarios(revision)) == set(direct)
    assert [check for checks in found.values() for check in checks if check.status in FAILED] == []
    differing = {name for name, checks in direct.items() if comparable(found[name]) != comparable(checks)}
    assert differing == HTTP_ONLY[revision]


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
def test_a_check_that_does_not_pass_is_a_problem_on_both_roads(status: str) -> None:
    """Two roads that fail alike are no success: there is no list of expected failures."""
    bad = Check("ping", status, "no answer")
    assert Verdict("2025-11-25", "ping", [bad], [bad]).problems == [
        f"direct: ping {status} no answer",
        f"adapter: ping {status} no answer",
    ]
