"""Some seconds of mixed load leave nothing behind. ``make soak`` takes an hour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.topology import Shape
from tests.soak.holding import MIB, SLACK_RSS, Holding, grown, settled
from tests.soak.run import run

SECONDS = 40.0

HELD = Holding(2, 80 * MIB, 40, 9, 0, {"drifts": 2, "secrets": 1}, 0)


@pytest.mark.e2e
@pytest.mark.timed
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # clients of the SDK leave connections that broke
async def test_nothing_grows(tmp_path: Path) -> None:
    """Memory, descriptors, threads, files, rows, sessions and processes are at the end what they were before."""
    verdict = await run(Shape(), SECONDS, 1, tmp_path)
    assert not verdict.grown, verdict.report()
    assert not verdict.failed, verdict.report()


@pytest.mark.parametrize("more", [{"processes": 3}, {"threads": 16}, {"files": 1}, {"upstream_sessions": 1}])
def test_one_more_of_anything_counts(more: dict[str, Any]) -> None:
    """One thing that is left behind is growth."""
    assert grown(HELD, HELD, replace(HELD, **more)) == list(more)


def test_rows_that_are_still_to_go_are_waited_for() -> None:
    """On a slow machine the cleanup is late; what it has not deleted yet is neither growth nor a measure of it."""
    late = replace(HELD, keys={**HELD.keys, "pins": 1})
    assert not settled([], late, HELD) and settled([], HELD, HELD)
    assert not settled([HELD], late, HELD) and settled([HELD], HELD, HELD)
    assert not settled([HELD, HELD], late, late) and settled([HELD, HELD], HELD, HELD)


def test_memory_may_grow_in_the_first_half_only() -> None:
    """Pools that fill once are no leak; the same growth again is one."""
    once = replace(HELD, rss=HELD.rss + 3 * SLACK_RSS)
    twice = replace(HELD, rss=HELD.rss + 6 * SLACK_RSS)
    assert grown(HELD, once, once) == []
    assert grown(HELD, once, twice) == ["rss"]
