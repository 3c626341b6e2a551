"""Clients nobody here wrote, in hosts that keep no session: they are served as their settings promise."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.e2e.processes import Server, adapter
from tests.e2e.talk import Command, Talk, connected

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.upstream_server"
BOTH = {"upstream": "principal", "missing_id": "principal"}
CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "ts_v1",
    "ts_v2 legacy",
    "python_v2 2026-07-28",
    "ts_v2 2026-07-28",
)


async def told(client: Talk, tool: str, **arguments: str) -> str:
    answer = await client.ask("call", tool=tool, arguments=arguments, timeout=10)
    assert answer["ok"], answer
    return str(answer["text"])


async def test_clients_of_both_eras_work_where_sessions_are_shared(command: Command, tmp_path: Path) -> None:
    """All at once, each with ids of its own making, each with several calls under way: everybody gets its answers."""
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, sessions=BOTH) as front,
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(connected(command, name, front.url, tmp_path, within=10))
            for name in CLIENTS
        ]

        async def work(number: int, client: Talk) -> None:
            assert (await client.ask("list", timeout=10))["text"] == "echo wait"
            for step in range(5):
                text = f"{number}-{step}"
                assert await told(client, "echo", text=text) == f"you said {text}"
            calls = await client.ask("together", tool="wait", arguments={"seconds": 0.2}, count=3, timeout=10)
            assert [each["text"] for each in calls["answers"]] == ["waited"] * 3

        await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))
