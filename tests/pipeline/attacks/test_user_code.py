"""Middleware that does not let go of its call, or does with it what it should not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.pipeline.attacks.hostile import Hostile, behind
from tests.pipeline.end_to_end.living import ERAS

SETTINGS = """
servers:
  - id: raw
    mount_path: /mcp
    upstream: {url: "%s"}
    tool_defaults: {tool_call_timeout_seconds: 0.2}
    stages:
      before: {middleware: ["stuck.py#before"]}
      after: {middleware: ["stuck.py#after"]}
      elsewhere: {middleware: ["stuck.py#elsewhere"]}
      exchanged: {middleware: ["stuck.py#exchanged"]}
core: {tool_definition_pinning: {mode: "off"}}
"""

STUCK = """
import asyncio

seen = []


async def before(ctx, args, next):
    while not ctx.signal.aborted:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


async def after(ctx, args, next):
    await next()
    await before(ctx, args, next)


async def elsewhere(ctx, args, next):
    asyncio.create_task(next())
    await asyncio.sleep(0)
    return {"own": True}


async def exchanged(ctx, args, next):
    seen.append(await next())
    return seen[0]
"""


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", ["before", "after"])
async def test_w_middleware_that_never_returns_keeps_no_caller(tmp_path: Path, era: str, tool: str) -> None:
    """Also where it swallows its cancellation: the caller hears that the time is over."""
    async with behind(Hostile(), tmp_path, SETTINGS, stuck=STUCK) as front, asyncio.timeout(20):
        answer = await front.call(tool, version=era)
    assert answer.failure == {"stage": "middleware", "code": -32000, "reason": "timeout"}
    assert answer.text == f"middleware failed for tool {tool}: timed out after 0.2 s"


async def test_w_next_in_another_task_ends_with_its_call(tmp_path: Path) -> None:
    """What the middleware answers is the answer, and nothing goes on when the call is over."""
    upstream = Hostile()
    async with behind(upstream, tmp_path, SETTINGS, stuck=STUCK) as front:
        answers = [await front.call("elsewhere") for _ in range(2)]
    assert [answer.data for answer in answers] == [{"own": True}] * 2
    assert upstream.ran == []


async def test_w_the_result_of_another_call_is_none_of_this(tmp_path: Path) -> None:
    """What ``next`` gave to one call cannot be the answer to another."""
    async with behind(Hostile(), tmp_path, SETTINGS, stuck=STUCK) as front:
        first, second = [await front.call("exchanged") for _ in range(2)]
    assert not first.result.get("isError")
    assert second.failure["stage"] == "middleware"
