"""The benchmark itself runs: few calls, so its numbers mean nothing here."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.bench import eras, memory, mounts, switched, tool_lists
from tests.bench.files import CPU, KINDS
from tests.bench.machine import Machine
from tests.bench.process import tree
from tests.bench.results import Results
from tests.bench.scenarios import SCENARIOS, Sample
from tests.bench.targets import TARGETS
from tests.edge.end_to_end.test_road_costs import COSTS
from tests.reaper import RUN

ROOT = Path(__file__).parents[2]


def run_bench(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


@pytest.mark.e2e
def test_a_quick_run_prints_every_row(tmp_path: Path) -> None:
    """Direct and the adapter go through every part, every target has its row, and the machine is named."""
    measured = tmp_path / "measured.json"

    ran = run_bench("tests.bench", "--quick", "--fronts", "direct,adapter", "--json", str(measured))

    assert ran.returncode == 0, ran.stderr
    assert "is missing" not in ran.stdout
    assert "Missing of" not in ran.stdout
    assert str(Machine.here()) in ran.stdout
    for scenario in SCENARIOS:
        if scenario.cpu_counts:
            assert scenario.title in ran.stdout
    for target in TARGETS:
        assert target.measure in ran.stdout
    found = orjson.loads(measured.read_bytes())
    fronts = found["fronts"]
    assert set(fronts) == {"direct", "adapter"}
    assert all(cost > 0 for rounds in fronts["adapter"]["cpu_us"].values() for cost in rounds)
    assert fronts["adapter"]["events_per_stream"] == 20
    assert found["missing"] == {} and found["machine"] == Machine.here().as_json()
    assert set(found["python_calls"]) == set(COSTS)
    assert set(found["figures"]) == {
        switched.PART,
        tool_lists.PART,
        mounts.PART,
        eras.PART,
        memory.PART,
        *KINDS,
    }
    for front in ("adapter", tool_lists.GUARDING, switched.ALL):
        assert any(front in measured for part in found["figures"].values() for measured in part.values())
    for kind in KINDS:
        assert all(cost > 0 for cost in found["figures"][kind][CPU]["adapter"])
    assert min(found["figures"][memory.PART][memory.BASE]["adapter"]) > 1


@pytest.mark.e2e
def test_a_killed_run_leaves_no_process() -> None:
    """The upstream, the front and the watcher over them end with a run that could not end them itself."""
    environment = {name: value for name, value in os.environ.items() if name != RUN}
    argv = [sys.executable, "-m", "tests.bench", "--only", "calls", "--fronts", "adapter"]
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, start_new_session=True
    ) as bench:
        assert bench.stderr is not None and b"round 1" in bench.stderr.readline()
        started = [(pid, os.pidfd_open(pid)) for pid in tree(bench.pid) if pid != bench.pid]
        assert len(started) == 3
        bench.kill()
        for pid, descriptor in started:
            assert select.select([descriptor], [], [], 30)[0], f"{pid} is still there"
            os.close(descriptor)


def test_one_number_of_many_rounds() -> None:
    """The median round counts; ratios and differences are taken within each round."""
    results = Results({"direct": "direct", "nginx": "nginx", "adapter": "adapter"})
    for bare, own, cpu in ((0.001, 0.002, 90.0), (0.005, 0.009, 60.0), (0.001, 0.004, 75.0)):
        results.add("direct", "seq", Sample(None, [bare]))
        results.add("nginx", "seq", Sample(20.0, [bare]))
        results.add("adapter", "seq", Sample(cpu, [own]))

    assert results.cpu("direct", "seq") is None
    assert results.cpu("adapter", "seq") == 75.0
    assert results.times("adapter", "seq") == [4.5, 3.0, 3.75]
    assert results.added("adapter", "seq", 0.5) == pytest.approx([1.0, 4.0, 3.0])
    assert results.times("adapter", "sse") == []


def test_a_target_says_which_bar_it_reaches() -> None:
    """Goal, must, neither, or not measured; for FastMCP's proxy more is better."""
    cost = TARGETS[0]
    cheaper = next(target for target in TARGETS if target.at_least)
    assert [cost.verdict(value) for value in (1.9, 3.0, 3.1, None)] == [
        "goal",
        "must",
        "not met",
        "not measured",
    ]
    assert [cheaper.verdict(value) for value in (150.0, 75.0, 74.0)] == ["goal", "must", "not met"]
