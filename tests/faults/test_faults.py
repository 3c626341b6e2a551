"""Random faults under load: every promise is kept. ``make faults`` runs more of them, by any seed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.run import run
from tests.faults.topology import Shape

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

FAULTS = {Shape(): 80, Shape(replicas=3): 80, Shape(workers=3): 30}
"""Workers have fewer: their host takes longer to start, and little of a fault is seen by anybody but the host."""


@pytest.fixture
def seed() -> int:
    """In CI the same faults each time, so that only a change makes the test fail; elsewhere new ones."""
    return 15 if os.environ.get("CI", "").lower() == "true" else random.SystemRandom().randrange(1 << 32)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # clients of the SDK leave connections that broke
@pytest.mark.parametrize("shape", FAULTS, ids=str)
async def test_every_promise_is_kept(
    shape: Shape, replicas_programs: None, seed: int, tmp_path: Path
) -> None:
    """Killed, paused and cut off at any moment, the adapter loses nothing, runs nothing twice and mixes nothing up."""
    verdict = await run(shape, FAULTS[shape], seed, tmp_path)
    assert len(verdict.history.faults) == FAULTS[shape]
    assert not verdict.violations, verdict.report()
