"""The plans of one server's tools, compiled when they are first called, and kept as long as they count anything."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from adapter.errors import LimitReached, ToolUnknown
from adapter.pipeline.plan import ToolPlan
from adapter.relay.call.planned import Planned
from adapter.relay.call.suspended_plan import Walks
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import Stages
from adapter.rules.text.unicode import LONGEST_NAME
from adapter.wire.envelope import Envelope, parse

PLANS = 1024
"""Tools of one server whose compiled plan is kept; names come from clients."""

BUSY_PLANS = 16 * PLANS
"""The same of plans that count calls, which would be forgotten with them."""

_LOOKED_AT = 4
"""Plans that are looked at to find one that can be let go of: more than come, so that none pile up."""


class Plans:
    """The plans of one server's tools, compiled when they are first called. ``compiled`` is None for a tool without."""

    def __init__(
        self,
        compiled: Callable[[str], ToolPlan | None],
        mirrors: ParamHeaders,
        notifications: Notifications,
        timeout: float | None,
    ) -> None:
        self._compiled = compiled
        self._mirrors = mirrors
        self._notifications = notifications
        self._timeout = timeout
        self._stages: OrderedDict[str, tuple[Planned, ...]] = OrderedDict()
        self._walks: Walks = {}

    def __repr__(self) -> str:
        return f"<Plans of {len(self._stages)} tools>"

    def __len__(self) -> int:
        return len(self._stages)

    def of(self, tool: str) -> Stages:
        """The stages around a call of the tool, before its files are looked after; none for most tools.

        Raises LimitReached, and ToolUnknown for a name that is too long to be kept.
        """
        if len(tool) > LONGEST_NAME:
            raise ToolUnknown(f"No tool has a name of more than {LONGEST_NAME} characters.")
        stages = self._stages.get(tool)
        if stages is None:
            if len(self._stages) >= PLANS:
                self._make_room()
            plan = self._compiled(tool)
            stages = self._stages[tool] = () if plan is None else (self._planned(plan),)
        return stages

    def _make_room(self) -> None:
        """Let go of old plans that count nothing: who calls many names must not have their limits begin anew."""
        for _ in range(_LOOKED_AT):
            tool, stages = self._stages.popitem(last=False)
            if any(not each.idle for each in stages):
                self._stages[tool] = stages
        if len(self._stages) >= BUSY_PLANS:
            raise LimitReached(
                "So many tools were called lately that no other can be counted; try again later."
            )

    def withdraw(self, session: str, notification: Envelope) -> None:
        """See Withdraw: a call that has not reached its tool is ended; one that has hears of it by its signal."""
        params = parse(notification.body).get("params")
        number = params.get("requestId") if isinstance(params, dict) else None
        # True is 1 to a dict, but not to JSON.
        if isinstance(number, str | int | float) and not isinstance(number, bool):
            walk = self._walks.get((session, number))
            if walk is not None:
                walk.withdraw()

    def _planned(self, plan: ToolPlan) -> Planned:
        return Planned(plan, self._mirrors, self._notifications, self._timeout, self._walks)
