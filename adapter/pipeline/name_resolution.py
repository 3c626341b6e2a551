"""Names that are not quite those that the settings speak of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adapter.errors import ToolUnknown
from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import Outcome

Listed = Callable[[PlannedCall], Awaitable[bool]]
"""Whether the upstream lists the call's tool by this very name."""


class Resolving:
    """A PlanStage for a name that differs by no more than case or form from one for which other stages are set.

    An upstream that does not mind such differences would run that one without them, so it has to be a tool's own name.
    """

    def __init__(self, tool: str, listed: Listed) -> None:
        self._tool = tool
        self._listed = listed

    def __repr__(self) -> str:
        return f"<Resolving of {self._tool!r}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Raises ToolUnknown, and what the upstream raises."""
        if not await self._listed(call):
            raise ToolUnknown(f"Unknown tool: {self._tool}")
        return await forward(call)
