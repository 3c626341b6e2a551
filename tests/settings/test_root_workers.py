"""The number of workers that ``core.workers`` means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapter.settings.root import worker_count

CORES = len(os.sched_getaffinity(0))


def test_a_number_is_that_number() -> None:
    """Also where the machine has fewer cores: who says so knows why."""
    assert [worker_count(number) for number in (1, 2, 200)] == [1, 2, 200]


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("max 100000", CORES),
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("6400000 100000", CORES),
        ("nonsense", CORES),
        ("100000 0", CORES),
        (None, CORES),
    ],
)
def test_auto_is_one_for_each_core(tmp_path: Path, limit: str | None, cores: int) -> None:
    """At most as many as a container may use, a part of one counting as one."""
    quota = tmp_path / "cpu.max"
    if limit is not None:
        quota.write_text(limit)
    assert worker_count("auto", quota) == cores
