"""What a report stands on: the machine, its counter of instructions, counted roads, and figures of many rounds."""

from __future__ import annotations

import os

import pytest

from tests.bench.figures import Figures, Spread
from tests.bench.instructions import TASK_CLOCK, Counter, Unreadable, counting, why_unreadable
from tests.bench.machine import Machine
from tests.bench.python_calls import calls_in


def test_a_machine_names_what_its_figures_depend_on() -> None:
    """Processor, cores, kernel and versions are there on every machine, and in the text."""
    here = Machine.here()

    assert here.cpu and here.cores > 0 and here.python.count(".") == 2
    assert all(str(value) in str(here) for value in here.as_json().values() if value)
    without = Machine("A", 2, "6.1", "3.11.2", "0.22.1", "")
    assert (
        str(without) == "Machine: A, 2 cores; Linux 6.1; Python 3.11.2, uvloop 0.22.1; nginx is not installed"
    )


def test_a_counter_sees_the_work_of_all_threads() -> None:
    """The clock of the kernel stands for the counter of instructions, which few machines have."""
    try:
        counter = Counter([os.getpid()], TASK_CLOCK)
    except Unreadable as reason:
        pytest.skip(str(reason))
    before = counter.read()
    sum(range(1_000_000))
    assert counter.read() > before
    counter.close()


def test_instructions_are_read_or_there_is_a_reason() -> None:
    """Where they cannot be counted nothing fails, and a sentence says why."""
    reason = why_unreadable()
    with counting([os.getpid()]) as counter:
        assert (counter is None) == bool(reason)
        assert counter is None or counter.read() > 0


def test_roads_are_read_from_a_report_of_tests() -> None:
    """Only tests that noted a road and its calls count, also one that failed."""
    noted = '<property name="road" value="a call"/><property name="python_calls" value="105"/>'
    report = (
        f"<testsuites><testsuite><testcase><properties>{noted}</properties><failure/></testcase>"
        '<testcase><properties><property name="road" value="other"/></properties></testcase><testcase/>'
        "</testsuite></testsuites>"
    )
    assert calls_in(report.encode()) == {"a call": 105}


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


def test_a_spread_has_a_range_only_of_many_rounds() -> None:
    """One value stands alone; of many there is the median with the least and the greatest."""
    assert Spread.of([1234.5]).text(1) == "1,234.5"
    assert Spread.of([3.0, 1.0, 2.0]).text(0) == "2 (1 – 3)"
