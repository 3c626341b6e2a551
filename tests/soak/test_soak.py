"""A minute of mixed load leaves nothing behind. ``make soak`` takes an hour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.topology import Shape
from tests.soak.holding import MIB, SLACK_RSS, Holding, grown
from tests.soak.run import run

MINUTE = 60.0

HELD = Holding(2, 80 * MIB, 40, 9, 0, 3, 0)


@pytest.mark.e2e
@pytest.mark.timed
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # clients of the SDK leave connections that broke
async def test_nothing_grows(tmp_path: Path) -> None:
    """Memory, descriptors, threads, files, rows, sessions and processes are at the end what they were before."""
    verdict = await run(Shape(), MINUTE, 1, tmp_path)
    assert not verdict.grown, verdict.report()
    assert not verdict.failed, verdict.report()


@pytest.mark.parametrize(
    "more", [{"processes": 3}, {"threads": 16}, {"files": 1}, {"keys": 4}, {"upstream_sessions": 1}]
)
def test_one_more_of_anything_counts(more: dict[str, int]) -> None:
    """One thing that is left behind is growth."""
    assert grown(HELD, HELD, replace(HELD, **more)) == list(more)


def test_definitions_may_fill_the_state_once() -> None:
    """Rows that the first half leaves are known definitions; rows of the second half are growth."""
    once, twice = replace(HELD, keys=30), replace(HELD, keys=31)
    assert grown(HELD, once, once) == []
    assert grown(HELD, once, twice) == ["keys"]


def test_memory_may_grow_in_the_first_half_only() -> None:
    """Pools that fill once are no leak; the same growth again is one."""
    once = replace(HELD, rss=HELD.rss + 3 * SLACK_RSS)
    twice = replace(HELD, rss=HELD.rss + 6 * SLACK_RSS)
    assert grown(HELD, once, once) == []
    assert grown(HELD, once, twice) == ["rss"]
