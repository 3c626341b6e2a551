"""More connections than there are places."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.attacks.arena import PATIENCE, Arena, attacked
from tests.attacks.crowd import crowd
from tests.edge.conftest import done
from tests.edge.raw import RawUpstream, result

pytestmark = pytest.mark.e2e

LIMIT = 200
FLOOD = 800


async def health_answers(arena: Arena, times: int) -> None:
    """Each time on a new connection, and in time."""
    for _ in range(times):
        async with asyncio.timeout(4 * PATIENCE), arena.client() as client:
            head, _ = await client.request("GET", path="/livez")
            assert head.status == 200


async def test_a_flood_of_connections_leaves_health_and_clients_alone(tmp_path: Path) -> None:
    """While all places are taken: who was there goes on, who comes is told to come again, and health answers."""
    async with (
        RawUpstream(done) as upstream,
        attacked(tmp_path, upstream.url, core={"max_connections": LIMIT}) as arena,
    ):
        async with arena.client() as early:
            await early.initialize()
            async with crowd(arena.client, FLOOD):
                await health_answers(arena, 20)
                async with arena.client() as late:
                    head, body = await late.request("POST")
                    assert head.status == 503 and head["retry-after"] == "1"
                    assert b"core.max_connections" in body
                assert (await early.call())[1] == result(1)
            await health_answers(arena, 1)
        async with asyncio.timeout(10):
            while True:
                async with arena.client() as client:
                    head, _ = await client.request("GET", path="/healthz")
                    if head.get("connection") != "close":
                        break
        assert arena.log.count("as many clients are connected as allowed") == 1
