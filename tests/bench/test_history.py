"""The comparer of recorded benchmarks: it names what became worse and with which commit, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.figures import Spread
from tests.bench.history import (
    Record,
    add,
    load,
    regressions,
    verdict,
)

ROOT = Path(__file__).parents[2]
MACHINE: dict[str, str | int] = {
    "cpu": "A",
    "cores": 2,
    "python": "3.11.2",
    "nginx": "1.22",
    "placement": "free",
}


def record(
    commit: str, *rounds: float, calls: int | None = None, accepted: str = "", **machine: str | int
) -> Record:
    """A record of one ratio and one count."""
    ratios = {"call × nginx": Spread.of(rounds)} if rounds else {}
    counts = {} if calls is None else {"a call": calls}
    return Record(commit, "2026-01-01T00:00:00Z", MACHINE | machine, ratios, counts, accepted=accepted)


def found(*records: Record) -> list[tuple[str, str]]:
    return [(each.measure, each.commit) for each in regressions(records)]


def test_a_ratio_above_its_spread_names_the_commit() -> None:
    """Each round is above each earlier round: the sentence has both figures and all three commits."""
    records = [record("a", 3.0, 3.1, 3.2), record("b", 3.0, 3.0, 3.3), record("c", 3.4, 3.5, 3.6)]

    (regression,) = regressions(records)

    assert str(regression) == (
        "call × nginx: 3.50 (3.40 – 3.60), was 3.00 (3.00 – 3.30) at b. Look at commit c, or one after b."
    )


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ((3.0, 3.1, 3.5), (3.4, 3.6, 3.7)),
        ((3.0, 3.01, 3.02), (3.1, 3.11, 3.12)),
        ((3.0, 3.1, 3.2), (2.0, 2.1, 2.2)),
    ],
    ids=["the rounds overlap", "within the tolerance", "better"],
)
def test_a_ratio_within_its_spread_is_no_regression(then: tuple[float, ...], now: tuple[float, ...]) -> None:
    """Rounds that overlap, a small difference and a better ratio are no news."""
    assert found(record("a", *then), record("b", *now)) == []


def test_a_slow_growth_is_found() -> None:
    """Each step is within the spread, but the best record counts and not the last; the first step too far is named."""
    records = [
        record(name, ratio, ratio + 0.1, ratio + 0.2)
        for name, ratio in zip("abcd", (3, 3.15, 3.3, 3.45), strict=True)
    ]

    assert found(*records[:2]) == []
    assert found(*records) == [("call × nginx", "c")]


def test_a_regression_that_was_mended_and_came_back_has_its_second_commit() -> None:
    """Only records since the last good one are looked at."""
    ratios = {"a": 3.0, "b": 4.0, "c": 3.0, "d": 4.0}
    assert found(*(record(name, ratio, ratio, ratio) for name, ratio in ratios.items())) == [
        ("call × nginx", "d")
    ]


def test_ratios_of_other_machines_are_not_compared() -> None:
    """Another processor, number of cores, Python, nginx or placement gives other ratios."""
    now = record("b", 9, 9, 9)
    for other in (
        {"cpu": "B"},
        {"cores": 8},
        {"python": "3.12.0"},
        {"nginx": "1.26"},
        {"placement": "apart"},
    ):
        assert found(record("a", 3, 3, 3, **other), now) == []
    assert found(record("a", 3, 3, 3, python="3.11.9", kernel="7"), now) == [("call × nginx", "b")]


def test_one_more_python_call_is_a_regression_on_any_machine() -> None:
    """A count is compared with the lowest of the same Python, whatever the processor is."""
    assert found(record("a", calls=105, cpu="B"), record("b", calls=106)) == [("a call", "b")]
    assert found(record("a", calls=105, python="3.12.1"), record("b", calls=106)) == []
    assert found(record("a", calls=105), record("b", calls=104), record("c", calls=104)) == []


def test_accepted_figures_are_the_new_best() -> None:
    """What was accepted is no regression, and what comes after is compared with it."""
    records = [record("a", 3, 3, 3, calls=100), record("b", 4, 4, 4, calls=120, accepted="calls are traced")]

    assert found(*records) == []
    assert found(*records, record("c", 4, 4, 4, calls=120)) == []
    assert found(*records, record("c", 5, 5, 5, calls=121)) == [("call × nginx", "c"), ("a call", "c")]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The file grows by one line a commit; a second run of the last commit on its machine replaces its line."""
    path = tmp_path / "history.jsonl"
    assert load(path) == [] and verdict([]) == ("History: nothing is recorded yet.", True)
    first, second, again = record("a", 3.0), record("b", 4.0, calls=7), record("b", 5.0)
    for each in (first, second, again):
        add(path, each)

    assert load(path) == [first, again]
    assert len(path.read_bytes().splitlines()) == 2
    add(path, record("b", 4.0, cpu="B"))
    assert len(load(path)) == 3


def test_the_command_fails_loudly(tmp_path: Path) -> None:
    """CI sees the status, and a reader the commit."""
    path = tmp_path / "history.jsonl"

    def compare() -> tuple[int, str]:
        argv = [sys.executable, "-m", "tests.bench.history", str(path)]
        ran = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
        return ran.returncode, ran.stdout

    add(path, record("aaaa", calls=105))
    assert compare() == (0, "History: no regression at commit aaaa, 1 recorded.\n")
    add(path, record("bbbb", calls=107))
    assert compare() == (
        1,
        "REGRESSION  a call: 107 Python calls, was 105 Python calls at aaaa. Look at commit bbbb, or one after aaaa.\n",
    )
    path.write_text("no record\n")
    assert compare()[0] == 1
