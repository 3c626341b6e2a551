"""The parts of the benchmark: machine, counters, figures of many rounds, and the run that puts them together."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from tests.bench import switched
from tests.bench.figures import Figures, Spread
from tests.bench.fronts import FRONTS
from tests.bench.load import LoadFailed
from tests.bench.machine import Machine
from tests.bench.parts import PARTS, Part, measure_parts
from tests.bench.recording import NotRecordable, commit_to_record, record_of
from tests.bench.report import report
from tests.bench.results import Results
from tests.bench.run import QUICK, Run
from tests.bench.scenarios import Sample


def test_figures_are_compared_within_a_round() -> None:
    """Ratios to another front and to another measure are taken round by round."""
    figures = Figures()
    for round_ in ((100.0, 150.0, 50.0), (110.0, 110.0, 10.0)):
        for (measure, front), value in zip(
            (("1", "own"), ("1000", "own"), ("1", "nginx")), round_, strict=True
        ):
            figures.add("connections", measure, front, value)

    assert figures.times("connections", "1", "own", "nginx") == [2.0, 11.0]
    assert figures.growth("connections", "1000", "1", "own") == [1.5, 1.0]
    assert figures.times("connections", "1000", "own", "nginx") == []
    assert figures.of("streams", "1", "own") == []
    assert figures.measures("connections") == ["1", "1000"]
    assert figures.fronts("connections") == ["own", "nginx"]


# --- the run ------------------------------------------------------------------------------------------------------


def a_run(place: Path) -> Run:
    return Run([FRONTS["adapter"]], QUICK, 0, place, Results({"adapter": "adapter"}))


def test_a_whole_run_ends_within_a_quarter_of_an_hour() -> None:
    """The limits of all parts together are not above that."""
    assert sum(part.seconds for part in PARTS.values()) <= 15 * 60


async def test_a_part_that_fails_or_takes_too_long_leaves_the_others(tmp_path: Path) -> None:
    """Figures from before the limit count, the next part is measured, and the report says what is missing."""
    run = a_run(tmp_path)

    async def too_long(run: Run) -> None:
        run.results.figures.add("slow", "cost", "adapter", 1.0)
        await asyncio.get_running_loop().create_future()

    async def failing(run: Run) -> None:
        raise LoadFailed("An answer was wrong.")

    async def good(run: Run) -> None:
        run.results.calls = {"a call": 1}

    parts = {"slow": Part(too_long, 0.01), "failing": Part(failing, 60), "good": Part(good, 60)}
    await measure_parts(run, parts)

    assert run.results.figures.of("slow", "cost", "adapter") == [1.0]
    assert run.results.calls == {"a call": 1}
    assert run.results.missing == {
        "slow": "it was not over after 0 seconds",
        "failing": "An answer was wrong.",
    }
    assert "Missing of failing: An answer was wrong." in "\n".join(report(run.results))


# --- ratios and records -------------------------------------------------------------------------------------------


def measured(rounds: int) -> Results:
    """Some rounds of one scenario, and of calls with all that people switch on, twice as dear as nginx."""
    results = Results({name: front.title for name, front in FRONTS.items()})
    for _ in range(rounds):
        for front, cost in (("nginx", 20.0), ("bare", 25.0), ("adapter", 40.0)):
            results.add(front, "seq", Sample(cost))
            on = switched.ALL if front == "adapter" else front
            results.figures.add(switched.PART, switched.CALL, on, cost)
    return results


def test_a_record_holds_what_varies_with_its_spread() -> None:
    """Ratios of three rounds and more, counts, the machine with the placement, and the reason for worse figures."""
    results = measured(3)
    results.calls = {"a call": 105}

    record = record_of(results, "abc", placement="apart", accepted="more is checked")

    assert record.ratios["call × nginx"] == Spread(2.0, 2.0, 2.0, 3)
    assert (record.commit, record.calls, record.accepted) == ("abc", {"a call": 105}, "more is checked")
    assert record.machine == Machine.here().as_json() | {"placement": "apart"}


def test_only_committed_code_is_recorded(tmp_path: Path) -> None:
    """A changed or new file of the measured code has no commit to be recorded under; other files do not matter."""
    with pytest.raises(NotRecordable, match="not known"):
        commit_to_record(tmp_path)
    code = tmp_path / "adapter" / "code.py"
    code.parent.mkdir()
    code.write_text("old")
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    for command in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "notes.txt").write_text("not measured")

    assert re.fullmatch("[0-9a-f]{12}", commit_to_record(tmp_path))
    code.write_text("new")
    with pytest.raises(NotRecordable, match=r"adapter/code\.py"):
        commit_to_record(tmp_path)
