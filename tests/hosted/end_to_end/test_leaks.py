"""A thousand calls of every kind leave a running adapter as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosted.exercise import SLACK_OBJECTS, exercising


@pytest.mark.deep
async def test_a_thousand_calls_leave_nothing(tmp_path: Path) -> None:
    """No task, thread, descriptor, session, running call, or object beyond those of the calls before."""
    async with exercising(tmp_path) as exercise:
        before = await exercise.holding()
        await exercise.calls(1_000)
        after = await exercise.holding(before)
    assert after.quiet_after(before), (before, after)
    assert after.objects - before.objects <= 2 * SLACK_OBJECTS, (before, after)
