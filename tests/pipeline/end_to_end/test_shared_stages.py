"""Stages of two replicas on one store: calls counted together, and results that both have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tests.edge.raw import RawUpstream
from tests.pipeline.end_to_end.living import Living, living
from tests.pipeline.end_to_end.workshop import echo, workshop
from tests.state.shared import SharedMemory

READS: Mapping[str, Any] = {"annotations": {"readOnlyHint": True}}

SHARED = """
state_sync:
  policies: [{match: "up.change", invalidates: ["work*"]}]
servers:
  - id: up
    mount_path: /mcp
    upstream: {url: "${UPSTREAM}"}
    stages:
      limited: {limits: {rate: {max: 3, window: 3600, key: tool, shared: true}}}
      alone: {limits: {rate: {max: 3, window: 3600, key: tool}}}
      work: {cache: {enabled: true, ttl: 60, vary: [], shared: true}}
      change: {}
"""

TOOLS = dict.fromkeys(("limited", "alone", "work", "change"), echo)


def replica(place: Path, up: RawUpstream, shared: SharedMemory) -> AbstractAsyncContextManager[Living]:
    return living(place, SHARED, {"UPSTREAM": up.url}, store=shared.replica())


def called_tools(up: RawUpstream) -> list[str]:
    messages: list[Any] = [call.message for call in up.calls("tools/call")]
    return [message["params"]["name"] for message in messages]


async def test_calls_of_two_replicas_are_counted_together(tmp_path: Path) -> None:
    """Three calls are allowed on both together; without ``shared`` on each."""
    shared = SharedMemory()
    async with (
        workshop(TOOLS) as up,
        replica(tmp_path / "one", up, shared) as one,
        replica(tmp_path / "other", up, shared) as other,
    ):
        for tool in ("limited", "alone"):
            for front in (one, other, one, other, one, other):
                await front.call(tool, {})
        called = called_tools(up)
        assert called.count("limited") == 3 and called.count("alone") == 6


async def test_result_of_one_replica_is_found_by_the_other_until_a_call_outdates_it(tmp_path: Path) -> None:
    """The upstream is asked once for both, and once more after a change on either of them."""
    shared = SharedMemory()
    async with (
        workshop(TOOLS, {"work": READS}) as up,
        replica(tmp_path / "one", up, shared) as one,
        replica(tmp_path / "other", up, shared) as other,
    ):

        def works() -> int:
            return called_tools(up).count("work")

        first = await one.call("work", {"n": 1})
        async with asyncio.timeout(10):
            while not [row for row in await shared.rows.scan("results") if row.value.startswith(b"D")]:
                await asyncio.sleep(0)
        assert (await other.call("work", {"n": 1})).result == first.result
        assert works() == 1
        await other.call("change", {})
        await one.call("work", {"n": 1})
        assert works() == 2
