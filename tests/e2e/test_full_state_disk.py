"""A disk of the state store that is full: everything on it can be read, and nothing can be written."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.disks import as_seen_by, fill, small_disk
from tests.e2e.processes import START_TIMEOUT, Adapter, adapter, start
from tests.edge.raw import INITIALIZE, RawClient, call_body, error_of

pytestmark = pytest.mark.e2e

NOTICED = 15.0
"""Seconds until the adapter has noticed, whoever asks."""


@asynccontextmanager
async def on_small_disk(place: Path, policy: str) -> AsyncIterator[tuple[Adapter, Path]]:
    """The adapter with its state alone on a disk of its own, and that disk."""
    mounted = place / "state"
    mounted.mkdir()
    async with await start(
        [sys.executable, "-m", "tests.bench.upstream"], place / "upstream.log"
    ) as upstream:
        url = f"http://127.0.0.1:{await upstream.line(START_TIMEOUT)}/mcp"
        state = {"unavailable_policy": policy, "disk": {"local_path": str(mounted / "adapter.sqlite3")}}
        async with adapter(place, url, launcher=small_disk(mounted), state_persistence=state) as front:
            yield front, as_seen_by(front, mounted)


async def ask(client: RawClient, path: str) -> tuple[int, dict[str, Any]]:
    head, body = await client.request("GET", path=path)
    return head.status, orjson.loads(body)


async def ready(client: RawClient, status: int) -> None:
    """Wait until ``/readyz`` has that status."""
    async with asyncio.timeout(NOTICED):
        while (await ask(client, "/readyz"))[0] != status:
            await asyncio.sleep(0.1)


async def test_adapter_is_not_ready_until_there_is_room(namespaces: None, tmp_path: Path) -> None:
    """New sessions fail with a sentence, open ones go on, health says why, and nothing has to be started anew."""
    async with on_small_disk(tmp_path, "fail_closed") as (front, disk):
        async with RawClient(front.port) as client, RawClient(front.port) as other:
            await client.initialize()
            fill(disk, leave=0)
            await ready(client, 503)
            status, body = await ask(client, "/healthz")
            assert (status, body["degraded_reason"]) == (503, "persistence_unavailable")
            assert body["persistence"] == {
                "type": "disk",
                "status": "error",
                "detail": "The disk of the state file is full.",
            }
            head, text = await other.request("POST", INITIALIZE)
            assert head.status == 200 and error_of(text)["code"] == -32014
            head, text = await client.request("POST", call_body("echo"))
            assert head.status == 200 and "result" in orjson.loads(text)
            assert (await ask(client, "/livez"))[0] == 200
            (disk / "filler").unlink()
            await ready(client, 200)
            assert (await ask(client, "/healthz"))[0] == 200
            await other.initialize()
            assert (await other.request("POST", call_body("echo")))[0].status == 200
        assert front.running is not None
        log = front.running.log.read_text()
        assert log.count("the state store cannot be written") <= 1


async def test_adapter_exits_where_it_is_told_to(namespaces: None, tmp_path: Path) -> None:
    """With ``unavailable_policy: exit`` the process ends with status 1, whether or not anybody asks for anything."""
    async with on_small_disk(tmp_path, "exit") as (front, disk):
        assert front.running is not None
        fill(disk, leave=0)
        async with asyncio.timeout(NOTICED):
            assert await front.running.process.wait() == 1
        assert "the state store failed; leaving" in front.running.log.read_text()
