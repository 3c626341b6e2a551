"""Metrics of several workers: each scrape has the numbers of all, also of those that were killed or replaced."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.supervised import PATIENCE, Supervised, supervised
from tests.edge.raw import RawClient, result
from tests.ports import free_port

pytestmark = pytest.mark.e2e

CALLS = "adapter_upstream_tool_calls_total"
SERVED = "mcp_server_operation_duration_seconds_count"


async def call(one: Supervised, times: int) -> None:
    """Call on as many connections, which the workers share among them."""
    for number in range(times):
        async with RawClient(one.port) as client:
            assert (await client.modern_call(number=number))[1] == result(number)


async def until(port: int, calls: int) -> dict[str, float]:
    """The sums as soon as so many calls are counted: of other workers, a scrape knows what was so a second before."""
    async with asyncio.timeout(PATIENCE):
        while (found := await scraped(port)).get(CALLS, 0) < calls:
            await asyncio.sleep(0.1)
    return found


async def scraped(port: int) -> dict[str, float]:
    """The sums of all samples of a name."""
    async with RawClient(port) as client:
        head, body = await client.request("GET", path="/metrics")
        assert head.status == 200
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for each in family.samples:
            found[each.name] = found.get(each.name, 0) + each.value
    return found


def folder_of(worker: int) -> Path:
    """The folder of the numbers that a worker keeps."""
    found = re.search(r"/\S+/mcp-adapter-metrics-\w+", Path(f"/proc/{worker}/maps").read_text())
    assert found is not None
    return Path(found.group())


async def test_numbers_are_of_all_workers(tmp_path: Path) -> None:
    """A worker that is killed takes nothing with it, one that is replaced neither, and no file is left behind."""
    port = free_port()
    telemetry = {"prometheus": {"enabled": True, "port": port}}
    async with supervised(tmp_path, telemetry=telemetry) as one:
        folder = folder_of(one.workers[0])
        await call(one, 20)
        found = await until(port, 20)
        assert found[CALLS] == found[SERVED] == 20
        assert found["adapter_build_info"] == 1
        os.kill(one.workers[0], signal.SIGKILL)
        await one.serving(3)
        assert (await scraped(port))[CALLS] == 20
        await call(one, 20)
        found = await until(port, 40)
        assert found[CALLS] == found[SERVED] == 40
        one.replace()
        await one.until(lambda: bool(one.logged("all workers have been replaced")))
        await call(one, 20)
        found = await until(port, 60)
        assert found[CALLS] == 60
        assert found["adapter_http_connections"] <= 2
        # While one was replaced, three ran at the same time; nobody has a file of his own.
        kept = {each.name for each in folder.glob("counter_*.db")}
        assert kept <= {f"counter_{seat}.db" for seat in range(3)}
    assert not folder.exists()
