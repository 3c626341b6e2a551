"""Calls and errors over the last hour: of all replicas for operators, their own for viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from tests.edge.conftest import StartUpstream
from tests.edge.consoling import AGENT, AUTH, OPERATOR, VIEWER, Shop, StartConsole, bearer, opened_console
from tests.edge.raw import Exchange, call_body
from tests.edge.test_console_data import READ, eventually
from tests.state.shared import SharedMemory

EXECUTE = {"allow_execute": True}
OFF = {"tool_definition_pinning": {"mode": "off"}}


def sums(told: Any) -> tuple[int, ...]:
    """Calls, other exchanges and failures of the hour."""
    assert len(told["minutes"]) == 60
    return tuple(sum(minute[place] for minute in told["minutes"]) for place in (1, 2, 3))


async def test_an_hour_is_counted_by_the_minute(console: StartConsole) -> None:
    """All of it for operators; a viewer learns of nobody else's."""

    async def half(exchange: Exchange) -> None:
        message: Any = exchange.message
        if message.get("params", {}).get("name") == "broken":
            await exchange.answer(500, b"")
        else:
            await Shop(READ)(exchange)

    async with console(half, core={"auth": AUTH, **OFF}) as (_, front, agent):
        await agent.initialize(**bearer(AGENT))
        for name in ("read", "read", "broken"):
            await agent.request("POST", call_body(name), **bearer(AGENT))
        told = await front.get("/activity", OPERATOR)
        assert sums(told) == (3, 1, 1) and told["whose"] == "all"
        assert told["minutes"][-1][0] % 60 == 0 and told["since"] > 0
        assert (told["replica"], told["heard"], told["silent"]) == (None, [], [])
        own, others = await front.get("/activity", AGENT), await front.get("/activity", VIEWER)
        assert sums(own) == (3, 1, 1) and own["whose"] == others["whose"] == "own"
        assert sums(others) == (0, 0, 0)


async def test_replicas_are_counted_together(tmp_path: Path, upstream: StartUpstream) -> None:
    """Whichever of them is asked says which of them it heard."""
    shared = SharedMemory()
    settings: dict[str, Any] = {"core": OFF, "storage": {"lock_mode": "none"}}
    async with (
        upstream(Shop(READ)) as up,
        opened_console(tmp_path, up, store=shared.replica(), **settings) as one,
        opened_console(tmp_path, up, store=shared.replica(), **settings) as other,
        other.client() as agent,
    ):
        await agent.initialize()
        await agent.request("POST", call_body("read"))
        told = await eventually(one, "/activity", lambda told: told["heard"])
        assert sums(told) == (1, 1, 0)
        assert len(told["heard"]) == 1 and told["silent"] == [] and told["replica"] not in told["heard"]


async def test_a_call_is_found_by_the_id_that_its_caller_gave_it(console: StartConsole) -> None:
    """Among its own exchanges, and by nobody else; an id that is not well formed is none."""
    core = {"auth": AUTH, **OFF}
    async with console(Shop(READ), core=core, console=EXECUTE) as (_, front, client):
        for call in ("a-call_1", "not well formed"):
            fields = {"x-adapter-call": call, "content-type": "application/json", **bearer(VIEWER)}
            await client.request("POST", orjson.dumps({}), "/explorer/raw/tools/read/call", **fields)
        own = await front.get("/exchanges", VIEWER)
        assert [(each["own"], each.get("call")) for each in own] == [(True, None), (True, "a-call_1")]
        every = await front.get("/exchanges", OPERATOR)
        assert [(each["own"], "call" in each) for each in every] == [(False, False)] * 2
