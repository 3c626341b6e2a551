"""Calls that their client gives up: in the queue, within a middleware, while the upstream or the script works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.pipeline.limits_stage import Concurrency
from adapter.relay.call.planned import Planned
from adapter.wire.envelope import Envelope, read_envelope
from tests.edge.raw import Exchange, call_body
from tests.pipeline.end_to_end.living import ERAS, Living, Speaker, living
from tests.pipeline.end_to_end.workshop import arguments_of, echo, workshop
from tests.plans import plans_of
from tests.waiting import until

SETTINGS = """
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      "*": {limits: {concurrency: {max_active: 1, max_queue: 5}}}
      held: {middleware: ["code.py#hold"]}
  - id: shop
    mount_path: /mcp/shop
    upstream: {transport: hosted}
    tools:
      define:
        - {name: slow, handler: "code.py#slow", limits: {concurrency: {max_active: 1, max_queue: 5}}}
"""

CODE = """
import asyncio


async def hold(ctx, args, next):
    if args.get("pass"):
        return await next()
    note("began")
    try:
        await asyncio.Event().wait()
    finally:
        note("aborted" if ctx.signal.aborted else "ended")


async def slow(payload):
    note("began")
    try:
        await asyncio.Event().wait()
    finally:
        note("ended")
"""


@dataclass
class Busy:
    """A Work that answers when it is let go, and notes who came and whether one went away."""

    came: list[int] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        self.came.append(arguments_of(exchange)["n"])
        self.began.set()
        leaving = asyncio.create_task(exchange.gone())
        await asyncio.wait(
            (leaving, asyncio.ensure_future(self.go.wait())), return_when=asyncio.FIRST_COMPLETED
        )
        if leaving.done():
            self.left.set()
        else:
            leaving.cancel()
            await echo(exchange)


@contextlib.asynccontextmanager
async def serving(place: Path, busy: Busy, **said: str) -> AsyncIterator[Living]:
    async with (
        workshop({"busy": busy, "held": echo}) as up,
        living(place, SETTINGS, {"UPSTREAM": up.url}, scripts={"code": CODE}, said=said) as front,
    ):
        yield front


def limit(front: Living, tool: str) -> Concurrency:
    """The limit of a tool's calls at once."""
    hosted = plans_of(front.app).tool("shop", tool)
    if hosted is not None:
        plan = hosted.plan
    else:
        call = read_envelope(call_body(tool))
        assert isinstance(call, Envelope)
        (planned,) = front.app.servers["up"].stages.stages_for(call)
        assert isinstance(planned, Planned)
        plan = planned._plan
    (found,) = [step.run for step in plan.steps if isinstance(step.run, Concurrency)]
    return found


async def cancel(speaker: Speaker, number: int, how: str, front: Living) -> None:
    """Give a call up, as the client of an era does: by a notification, or by closing the connection."""
    if how == "closes":
        speaker.raw.close()
        return
    async with front.speaker(speaker.version, speaker.path) as other:
        other.raw.session = speaker.raw.session
        head = await other.tell("notifications/cancelled", {"requestId": number, "reason": "no more"})
        assert head.status == 202


WAYS = [(ERAS[0], "closes"), (ERAS[0], "says so"), (ERAS[1], "closes")]


@pytest.mark.parametrize(("version", "how"), WAYS)
async def test_v4_a_call_that_waits_leaves_the_queue(tmp_path: Path, version: str, how: str) -> None:
    """Its place is free at once, and it never reaches the upstream."""
    busy = Busy()
    async with serving(tmp_path, busy) as front, contextlib.AsyncExitStack() as stack:
        first, second, third = [await stack.enter_async_context(front.speaker(version)) for _ in range(3)]
        await first.begin("busy", {"n": 1})
        await busy.began.wait()
        number = await second.begin("busy", {"n": 2})
        await until(lambda: limit(front, "busy").queued == 1)
        await third.begin("busy", {"n": 3})
        await until(lambda: limit(front, "busy").queued == 2)
        await cancel(second, number, how, front)
        await until(lambda: limit(front, "busy").queued == 1)
        busy.go.set()
        await asyncio.gather(first.raw.head(), third.raw.head())
        await until(lambda: limit(front, "busy").active == 0)
        assert busy.came == [1, 3]


@pytest.mark.parametrize(("version", "how"), WAYS)
async def test_v4_a_call_within_a_middleware_is_ended(tmp_path: Path, version: str, how: str) -> None:
    """The middleware is cancelled where it waits, the signal says so, and the tool's place is free."""
    async with serving(tmp_path, Busy()) as front, front.speaker(version) as speaker:
        number = await speaker.begin("held")
        await until(lambda: front.ran() == ["began"])
        await cancel(speaker, number, how, front)
        await until(lambda: len(front.ran()) == 2)
        await until(lambda: limit(front, "held").active == 0)
        assert (await front.call("held", {"pass": 1}, version=version)).data == {"pass": 1}


@pytest.mark.parametrize("version", ERAS)
async def test_v4_who_leaves_while_the_upstream_works_frees_the_place(tmp_path: Path, version: str) -> None:
    """The upstream reads it from its connection, and the next call begins."""
    busy = Busy()
    async with serving(tmp_path, busy) as front, front.speaker(version) as speaker:
        await speaker.begin("busy", {"n": 1})
        await busy.began.wait()
        speaker.raw.close()
        await until(lambda: limit(front, "busy").active == 0)
        await asyncio.wait_for(busy.left.wait(), 20)
        busy.go.set()
        assert (await front.call("busy", {"n": 2}, version=version)).data == {"n": 2}


@pytest.mark.parametrize(("path", "tool"), [("/mcp", "held"), ("/mcp/shop", "slow")])
async def test_a_nameless_client_ends_no_call_of_another(tmp_path: Path, path: str, tool: str) -> None:
    """Both send no session id and count from 1: the other's call runs on until its own client hangs up."""
    async with (
        serving(tmp_path, Busy(), **{"sessions.missing_id": "principal"}) as front,
        front.speaker(path=path) as one,
        front.speaker(path=path) as other,
    ):
        one.raw.session = other.raw.session = None
        number = await one.begin(tool)
        await until(lambda: front.ran() == ["began"])
        await other.tell("notifications/cancelled", {"requestId": number})
        assert (await other.ask("ping", {})).result == {}
        assert front.ran() == ["began"]
        one.raw.close()
        await until(lambda: len(front.ran()) == 2)


async def test_v4_nothing_is_left_of_a_thousand_calls_that_were_given_up(tmp_path: Path) -> None:
    """Neither tasks nor places: ten at a time, some in the queue and some at work."""
    async with serving(tmp_path, Busy()) as front:
        assert (await front.call("held", {"pass": 1}, version=ERAS[1])).data == {"pass": 1}
        before = len(asyncio.all_tasks())
        for _ in range(100):
            async with contextlib.AsyncExitStack() as stack:
                speakers = [
                    await stack.enter_async_context(front.speaker(ERAS[1], path))
                    for path in ("/mcp", "/mcp/shop") * 5
                ]
                for speaker in speakers:
                    await speaker.begin("held" if speaker.path == "/mcp" else "slow")
        await until(
            lambda: (
                limit(front, "held").active
                == limit(front, "slow").active
                == limit(front, "held").queued
                == limit(front, "slow").queued
                == 0
            )
        )
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert (await front.call("held", {"pass": 1}, version=ERAS[1])).data == {"pass": 1}
        upstream = plans_of(front.app).servers["shop"]
        assert upstream.server.running == 0
