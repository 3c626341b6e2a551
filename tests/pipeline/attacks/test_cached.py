"""Kept answers that somebody else might get, or have to wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import LimitReached
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import ErrorStyle, Outcome
from adapter.pipeline.limits_stage import Concurrency, Rate
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan
from adapter.pipeline.result_cache import Lookup, ResultCache, ResultForm
from adapter.relay.call.planned import BUSY_PLANS, PLANS, Plans
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from tests.edge.raw import Exchange
from tests.pipeline.attacks.hostile import Hostile, behind, response
from tests.pipeline.end_to_end.living import ERAS
from tests.pipeline.walking import Behind, a_call, answered

SETTINGS = """
servers:
  - id: raw
    mount_path: /mcp
    upstream: {url: "%s", client_headers: {passthrough: [Authorization]}}
    stages:
      "read_*": {cache: {enabled: true, ttl: 60s}}
core: {tool_definition_pinning: {mode: "off"}}
"""


async def whoever(exchange: Exchange, number: Any) -> None:
    """Answers by whom the client's own credentials name."""
    text = exchange.head.get("authorization") or "nobody"
    await exchange.json(response(number, {"content": [{"type": "text", "text": text}]}))


@pytest.mark.parametrize("era", ERAS)
async def test_w_who_brings_other_credentials_gets_no_kept_answer(tmp_path: Path, era: str) -> None:
    """Callers whom only the upstream tells apart are one principal here, and still not each other."""
    upstream = Hostile(whoever, listed=["read_a"], annotations={"readOnlyHint": True})
    async with behind(upstream, tmp_path, SETTINGS) as front, front.speaker(era) as speaker:
        said = [
            (await speaker.call("read_a", headers={"authorization": f"Bearer {who}"})).text
            for who in ("ann", "bob", "ann")
        ]
        said.append((await speaker.call("read_a")).text)
    assert said == ["Bearer ann", "Bearer bob", "Bearer ann", "nobody"]
    assert len(upstream.ran) == 3


async def test_w_nobody_waits_for_ever_for_anothers_answer() -> None:
    """Who leads and does not come to an end, as a client does that reads nothing, keeps nobody."""
    cache, begun = ResultCache(1 << 20, lambda: 0.0), asyncio.Event()

    lookup = Lookup("k", "t", 60, ResultForm(str.encode, bytes.decode))

    async def endless() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def own() -> str:
        return "own"

    leading = asyncio.create_task(cache.find(lookup, endless))
    await begun.wait()
    assert await cache.find(lookup._replace(patience=0.01), own) == ("own", False)
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading


# --- limits that somebody tries to have forgotten --------------------------------------------------------------


async def test_w_calling_many_names_does_not_reset_a_rate(tmp_path: Path) -> None:
    """A tool's rate holds also after more other names were called than plans are kept."""
    async with behind(Hostile(), tmp_path) as front, front.speaker() as speaker:
        await speaker.call("rare_a")
        for number in range(PLANS + 10):
            await speaker.call(f"rare_{number}")
        answer = await speaker.call("rare_a")
    assert answer.failure["reason"] == "rate"


class Counted:
    """Plans with a rate by a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.compiled: list[str] = []
        self.plans = Plans(self._plan, ParamHeaders(), Notifications(), None)

    def _plan(self, tool: str) -> ToolPlan:
        self.compiled.append(tool)
        self.rate = Rate(tool, 1, 60, lambda _: None, lambda: self.now)
        return ToolPlan(tool, "proxied", [Step(Slot.LIMITS, "", self.rate)], ErrorStyle())

    async def call(self, tool: str) -> None:
        self.plans.of(tool)
        await self.rate(a_call(), Behind())


async def test_plans_that_count_nothing_are_let_go_of() -> None:
    """What is kept stays bounded, and shrinks again when calls no longer count."""
    counted = Counted()
    for number in range(2 * PLANS):
        await counted.call(str(number))
    counted.now = 61
    for number in range(PLANS):
        counted.plans.of(f"more {number}")
    assert PLANS / 2 < len(counted.plans) <= PLANS


async def test_w_more_names_than_can_be_counted_are_refused() -> None:
    """Nobody fills the memory with names, and nobody's count gives way."""
    counted = Counted()
    for number in range(BUSY_PLANS):
        await counted.call(str(number))
    with pytest.raises(LimitReached):
        counted.plans.of("another")
    counted.plans.of("0")
    assert counted.compiled.count("0") == 1


async def test_a_call_under_way_keeps_its_plan() -> None:
    """Also where a limit counts those that run at once."""
    limit = Concurrency("t", 1)
    plan = ToolPlan("t", "proxied", [Step(Slot.LIMITS, "", limit)], ErrorStyle())

    async def under_way(_: PlannedCall) -> Outcome:
        assert not plan.idle
        return answered("done")

    assert plan.idle
    await limit(a_call(), under_way)
    assert plan.idle
