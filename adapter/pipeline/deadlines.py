"""The end of a call's time: one deadline for all its stages, and the sentence of the stage that it ended at.

Whoever runs a plan keeps the time: at the deadline it asks the plan for the outcome, cancels the walk, and answers as
soon as that has cleaned up, at the latest after ``GRACE`` seconds.
"""

from __future__ import annotations

from adapter.pipeline.failures import DOING, Stage, StageFailed
from adapter.rules.results import refusals

GRACE = 0.1
"""Seconds that cancelled code gets to clean up before its caller is answered."""

LEFT_OVER_AT_MOST = 100
"""Calls of one tool that were given up and have not ended: with so many no other is begun."""


def overdue(stage: Stage, tool: str, seconds: float) -> StageFailed:
    """The failure of a call of ``tool`` whose ``seconds`` ended while it was at ``stage``."""
    took = f"timed out after {seconds:g} s"
    if stage == "context":
        return StageFailed(stage, DOING[stage], "timeout")
    if stage in DOING:
        return StageFailed(stage, f"{DOING[stage]} for tool {tool}: {took}", "timeout")
    if stage == "auth":
        return StageFailed(stage, f"unauthorized: {took}", "timeout")
    if stage == "validation":
        return StageFailed(stage, f"input validation failed: {took}", "timeout")
    if stage == "connector":
        late = f"the statement took longer than {seconds:g} s"
        return StageFailed(stage, f"tool execution failed: failed to execute query: {late}", "timeout")
    worded = refusals.timed_out(tool, seconds=seconds)
    return StageFailed.worded(stage, str(worded.message), worded, "timeout")


def crowded(tool: str) -> StageFailed:
    """The refusal of a call of ``tool``, of which too many are left over."""
    return StageFailed("limits", f"too many calls of {tool} were given up and have not ended", "busy")
